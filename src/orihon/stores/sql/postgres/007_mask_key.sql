-- The key of masked ids, one for all workers. Roles that only read the tasks of one user cannot read it.
CREATE TABLE mask_key (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    key bytea NOT NULL
);
DO $$
DECLARE
    worker text;
BEGIN
    FOR worker IN
        SELECT DISTINCT grantee FROM information_schema.role_table_grants
        WHERE table_schema = current_schema() AND table_name = 'tasks' AND privilege_type = 'INSERT'
            AND grantee NOT IN ('PUBLIC', current_user)
    LOOP
        EXECUTE format('GRANT SELECT, INSERT ON mask_key TO %I', worker);
    END LOOP;
END
$$;
