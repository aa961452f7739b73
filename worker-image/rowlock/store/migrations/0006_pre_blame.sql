-- Whose fault it is that a process died.
--
-- A process that ends takes all its runs along, and mostly one of them is why. What its supervisor saw says which;
-- what nobody saw makes all of them suspects, and those that were there twice go on alone, where it will show.
--
-- Three verdicts: `blamed` (the loss is put down to this run: maxTakeovers bounds those),
-- `displaced` (another run did it), `suspected` (it or another one). NULL where no worker was lost.

-- Judge one run of a process that ended.
-- alone    whether it was the only run there
-- on_loop  whether its code was on the event loop
-- known    whether the code of any of the runs there was
CREATE FUNCTION rowlock.blame(reason text, alone boolean, on_loop boolean, known boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN reason = 'Left' THEN NULL
    WHEN on_loop OR alone THEN 'blamed'
    -- A whole worker was lost in silence, with its pod or with its node: no process had died of a run
    -- that anybody knows of, but something that happens again and again must end, so it counts for all.
    WHEN reason NOT IN ('WorkerDied', 'Stalled') THEN 'blamed'
    WHEN known THEN 'displaced'
    ELSE 'suspected' END
$$;

-- Say how many more processes the run may have killed. One that is to blame is a suspect first of all:
-- with its code on the loop it may still have been a thread of another run.
CREATE FUNCTION rowlock.suspicion(reason text, blame text) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN reason IN ('WorkerDied', 'Stalled') AND blame IN ('blamed', 'suspected') THEN 1 ELSE 0 END
$$;

-- How long a suspect must live alone until it may be among others again: half a minute, and twice as long
-- with every further process that died with it.
CREATE FUNCTION rowlock.probation(suspected smallint) RETURNS interval LANGUAGE sql IMMUTABLE AS $$
  SELECT interval '30 seconds' * 2 ^ least(greatest(suspected - 2, 0), 10)
$$;
