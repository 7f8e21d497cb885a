import { createHash } from 'node:crypto'
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll } from 'vitest'
import type { ContentCipher } from '#src/storage/content-cipher.ts'
import { type Database, type DatabaseLocation, openDatabase } from '#src/storage/database.ts'
import { createTestDatabase } from './test-database.ts'

/** Stores are tested on Postgres; test/src/storage/open-database.ts has what holds for both. */
export type DatabaseKind = 'embedded' | 'postgres'

/** Gives any number of empty, migrated databases of one kind. */
export type DatabaseSource = {
  /** Where a new database is, or may be made. */
  locate(): Promise<DatabaseLocation>
  /** Opens a new database; `stop` closes it. */
  open(content?: ContentCipher): Promise<Database>
  /** Closes the databases that `open` gave, and removes everything. */
  stop(): Promise<void>
}

/** Databases of the run's server for `postgres`; folders for `embedded`. */
export async function startDatabases(kind: DatabaseKind = 'postgres'): Promise<DatabaseSource> {
  const opened: Database[] = []
  const places = kind === 'postgres' ? ON_SERVER : createFolders()
  return {
    locate: places.locate,
    async open(content) {
      const database = await openDatabase(await places.locate(), undefined, content)
      opened.push(database)
      return database
    },
    async stop() {
      await Promise.all(opened.map((database) => database.close()))
      await places.stop()
    },
  }
}

/** Databases for the tests of the file that calls this at its top level: it stops them at its end. */
export async function useDatabases(kind?: DatabaseKind): Promise<DatabaseSource> {
  const source = await startDatabases(kind)
  afterAll(() => source.stop(), 60_000)
  return source
}

/** One database, likewise. */
export async function useDatabase(): Promise<Database> {
  return (await useDatabases()).open()
}

/** Pools of connections, as of so many gateways, to one new database, likewise. */
export async function useConnections(count: number): Promise<readonly Database[]> {
  const source = await useDatabases()
  const location = await source.locate()
  const pools = await Promise.all(Array.from({ length: count }, () => openDatabase(location)))
  afterAll(() => Promise.all(pools.map((pool) => pool.close())))
  return pools
}

const ON_SERVER = {
  locate: async () => ({ url: await createTestDatabase() }),
  stop: async () => undefined,
}

function createFolders() {
  const folders: string[] = []
  return {
    async locate() {
      const dataFolder = await mkdtemp(path.join(tmpdir(), 'affidavit-embedded-'))
      folders.push(dataFolder)
      await copyEmbeddedDatabase(dataFolder)
      return { dataFolder }
    },
    async stop() {
      for (const folder of folders) await rm(folder, { recursive: true, force: true })
    },
  }
}

const HOUSE = path.join(import.meta.dirname, '..', '..')

/**
 * Puts a migrated, closed embedded database into a folder. To make one takes seconds; to copy one
 * takes a fraction of a second.
 */
export async function copyEmbeddedDatabase(folder: string): Promise<void> {
  await cp(await prepareTemplate(), folder, { recursive: true })
}

/**
 * Gives a folder with a migrated, closed embedded database. It is kept beside the packages, under a
 * name that changes with the migrations and with PGlite.
 */
async function prepareTemplate(): Promise<string> {
  const cache = path.join(HOUSE, 'node_modules', '.cache', 'affidavit')
  const template = path.join(cache, `embedded-${await describeTemplate()}`)
  if (await exists(template)) return template
  await mkdir(cache, { recursive: true })
  const draft = await mkdtemp(`${template}-`)
  const database = await openDatabase({ dataFolder: draft })
  await database.close()
  // Another test file may have been faster; its template is as good.
  await rename(draft, template).catch(() => rm(draft, { recursive: true, force: true }))
  return template
}

async function describeTemplate(): Promise<string> {
  const digest = createHash('sha256')
  const migrations = path.join(HOUSE, 'migrations')
  const files = (await readdir(migrations)).filter((file) => file.endsWith('.ts')).toSorted()
  for (const file of files) digest.update(file).update(await readFile(path.join(migrations, file)))
  digest.update(await readFile(createRequire(import.meta.url).resolve('@electric-sql/pglite')))
  return digest.digest('hex').slice(0, 16)
}

async function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  )
}
