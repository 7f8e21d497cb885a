import { existsSync } from 'node:fs'
import { open as openFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { PGlite } from '@electric-sql/pglite'

/**
 * The thread of the embedded database in `workerData.folder`. Sends null when the database is open.
 * Then receives messages of Postgres' protocol as bytes, and sends the answer to each. When it
 * receives null, it closes the database.
 */
if (parentPort === null) throw new Error('expected to be run as a worker thread')
const port = parentPort
const pglite = await open(path.join(String(workerData.folder), 'pgdata'))
let running: Promise<void> = Promise.resolve()
port.on('message', (message: Uint8Array | null) => {
  running = running.then(() => (message === null ? close() : answer(message)))
})
port.postMessage(null)

/**
 * If there is no database, copies an empty one from an optional package, because initdb takes three
 * times as long. If the process ended before a new database was complete, makes the database again.
 */
async function open(dataDir: string): Promise<PGlite> {
  const unfinished = `${dataDir}.unfinished`
  if (existsSync(unfinished)) await rm(dataDir, { recursive: true, force: true })
  if (existsSync(dataDir)) return PGlite.create({ dataDir })
  await writeFile(unfinished, '', { flush: true })
  await syncFolder(path.dirname(dataDir))
  const packed = await import('@electric-sql/pglite-prepopulatedfs')
    .then(({ dataDir: read }) => read())
    .catch(() => null)
  const template = packed === null ? {} : { loadDataDir: packed }
  const made = await PGlite.create({ dataDir, ...template })
  await rm(unfinished)
  await syncFolder(path.dirname(dataDir))
  return made
}

/** Syncs the folder's list of files to the disk. */
async function syncFolder(folder: string): Promise<void> {
  await using handle = await openFile(folder)
  await handle.sync()
}

async function answer(message: Uint8Array): Promise<void> {
  const bytes = await pglite.execProtocolRaw(message)
  if (bytes.buffer instanceof ArrayBuffer && bytes.length > 0)
    port.postMessage(bytes, [bytes.buffer])
}

async function close(): Promise<void> {
  await pglite.close()
  port.close()
}
