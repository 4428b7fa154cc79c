-- name: SetState :execrows
UPDATE invoice SET state = $2 WHERE id = $1;
