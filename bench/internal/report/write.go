package report

import (
	"io"
	"os"
	"path/filepath"
)

// Write prints the results and writes them to a directory: latest.txt has the printed
// text, latest.json the table, and the plots are *.svg.
func (r *Results) Write(dir string, m Machine) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, "latest.txt"))
	if err != nil {
		return err
	}
	w := io.MultiWriter(os.Stdout, file)
	m.WriteMachine(w)
	r.WriteTable(w)
	r.WriteGoals(w)
	if err := file.Close(); err != nil {
		return err
	}
	if err := r.WriteJSON(filepath.Join(dir, "latest.json"), m); err != nil {
		return err
	}
	return r.WritePlots(dir)
}
