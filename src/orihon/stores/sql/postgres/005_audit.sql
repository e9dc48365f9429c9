-- Who looked at what: `line` is JSON. Whoever may use the database adds to it, and only the owner of the tables reads it.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    line bytea NOT NULL
);
GRANT INSERT ON audit TO PUBLIC;
