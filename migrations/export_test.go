package migrations

import (
	"io/fs"
	"os"
	"testing/fstest"
)

// Add adds the migrations in the directories of dir until restore is called.
func Add(dir string) (restore func()) {
	all := fstest.MapFS{}
	for _, from := range []fs.FS{embedded, os.DirFS(dir)} {
		paths, err := fs.Glob(from, "*/*.sql")
		if err != nil {
			panic(err)
		}
		for _, path := range paths {
			text, err := fs.ReadFile(from, path)
			if err != nil {
				panic(err)
			}
			all[path] = &fstest.MapFile{Data: text}
		}
	}
	sources = all
	return func() { sources = embedded }
}
