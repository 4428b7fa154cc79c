package testdb

// Dir returns where the server has its files.
func (s *Server) Dir() string { return s.i.dir }

// Pid returns the server's process.
func (s *Server) Pid() int { return s.i.pid }

// Base returns the DSN of the server that the database is on.
func (d *Database) Base() string { return d.base }

// Name returns the name of the database on its server.
func (d *Database) Name() string { return d.name }

// ForgetGlobs makes this a machine with no servers but those on the PATH.
func ForgetGlobs() { postgresGlobs, mariadbDirs = nil, nil }
