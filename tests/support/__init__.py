"""What several tests share: made-up histories, fake tasks, hostile files, a real terminal."""
