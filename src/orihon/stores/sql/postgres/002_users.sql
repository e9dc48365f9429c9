-- Which role sees which tasks. The owner of the tables sees all. Any other role sees the rows that a policy of its name
-- on `tasks` shows (`orihon migrate --role NAME [--user USER]` creates one), and the lists of these tasks.
ALTER TABLE tasks ENABLE ROW LEVEL SECURITY;
ALTER TABLE metadata ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_its_task ON metadata USING (EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = metadata.uuid));
ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_its_task ON messages USING (EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = messages.uuid));
ALTER TABLE summaries ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_its_task ON summaries USING (EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = summaries.uuid));
ALTER TABLE tool_calls ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_its_task ON tool_calls USING (EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = tool_calls.uuid));
ALTER TABLE events ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_its_task ON events USING (EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = events.uuid));
ALTER TABLE folds ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_its_task ON folds USING (EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = folds.uuid));
ALTER TABLE planning ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_its_task ON planning USING (EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = planning.uuid));
ALTER TABLE blobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_its_task ON blobs USING (EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = blobs.uuid));
