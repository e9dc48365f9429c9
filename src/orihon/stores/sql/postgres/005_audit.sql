-- Who read what: `line` is JSON. Every role may insert, and only the owner of the tables reads it.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    line bytea NOT NULL
);
GRANT INSERT ON audit TO PUBLIC;
