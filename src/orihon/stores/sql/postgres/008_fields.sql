-- Fields of summaries and tool calls that queries can name. A line that is no JSON has none.
CREATE FUNCTION orihon_field(line bytea, name text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(line, 'UTF8')::json ->> name;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;
CREATE FUNCTION orihon_number(line bytea, name text) RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (convert_from(line, 'UTF8')::json ->> name)::double precision;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;
ALTER TABLE summaries
    ADD COLUMN start_seq bigint GENERATED ALWAYS AS (orihon_number(line, 'start_seq')) STORED,
    ADD COLUMN end_seq bigint GENERATED ALWAYS AS (orihon_number(line, 'end_seq')) STORED,
    ADD COLUMN summary text GENERATED ALWAYS AS (orihon_field(line, 'summary')) STORED,
    ADD COLUMN original_tokens bigint GENERATED ALWAYS AS (orihon_number(line, 'original_tokens')) STORED,
    ADD COLUMN summary_tokens bigint GENERATED ALWAYS AS (orihon_number(line, 'summary_tokens')) STORED,
    ADD COLUMN ratio double precision GENERATED ALWAYS AS (orihon_number(line, 'ratio')) STORED,
    ADD COLUMN kind text GENERATED ALWAYS AS (coalesce(orihon_field(line, 'kind'), 'rolling')) STORED,
    ADD COLUMN model text GENERATED ALWAYS AS (orihon_field(line, 'model')) STORED,
    ADD COLUMN timestamp text GENERATED ALWAYS AS (orihon_field(line, 'timestamp')) STORED;
ALTER TABLE tool_calls
    ADD COLUMN tool text GENERATED ALWAYS AS (orihon_field(line, 'tool')) STORED,
    ADD COLUMN args text GENERATED ALWAYS AS (orihon_field(line, 'args')) STORED,
    ADD COLUMN result text GENERATED ALWAYS AS (orihon_field(line, 'result')) STORED,
    ADD COLUMN status text GENERATED ALWAYS AS (orihon_field(line, 'status')) STORED,
    ADD COLUMN error text GENERATED ALWAYS AS (orihon_field(line, 'error')) STORED,
    ADD COLUMN duration_ms bigint GENERATED ALWAYS AS (orihon_number(line, 'duration_ms')) STORED,
    ADD COLUMN timestamp text GENERATED ALWAYS AS (orihon_field(line, 'timestamp')) STORED,
    ADD COLUMN call_id text GENERATED ALWAYS AS (orihon_field(line, 'call_id')) STORED,
    ADD COLUMN message_seq bigint GENERATED ALWAYS AS (orihon_number(line, 'message_seq')) STORED;
