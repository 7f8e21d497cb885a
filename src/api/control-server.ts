import { once } from 'node:events'
import { lstat, rm, writeFile } from 'node:fs/promises'
import type { Server } from 'node:http'
import { join } from 'node:path'
import Koa from 'koa'
import type { Logger } from '../observability/logger.ts'
import { StartFailure, systemCodeOf } from '../runtime/starting.ts'
import { removeStaleFolder } from '../storage/data-folder.ts'
import { createMemoryBudget } from './admission.ts'
import { answerErrors } from './answer-errors.ts'
import { createRouter } from './app.ts'
import { createCallSignals } from './call-signals.ts'
import type { ApiMiddleware, RequestState } from './context.ts'
import {
  CONTROL_FILE,
  type ControlAddress,
  isAnswered,
  nameOperator,
  OPERATOR_UID_HEADER,
  PROCESSES_HEADER,
  readControlAddress,
} from './control-address.ts'
import { OPENAI_FACE } from './faces.ts'
import { LEAST_RATE } from './least-rate.ts'
import type { Route } from './route.ts'
import { createHttpServer } from './server.ts'
import { openRequest } from './track-calls.ts'

/** For all calls together. Bodies contain only names and reasons. */
const MEMORY_BYTES_MAX = 64 * 1024 * 1024
/** A required setting without effect, because administrators' routes have no streams. */
const KEEP_ALIVE_MS = 15_000

/**
 * Opens the control socket in a private folder, and writes its address into the data folder. The
 * data folder must be locked, because the files of an earlier gateway are removed. Returns a
 * function that closes the socket.
 */
export async function openControl(
  server: Server,
  { dataFolder, privateFolder }: { readonly dataFolder: string; readonly privateFolder: string },
): Promise<() => Promise<void>> {
  const file = join(dataFolder, CONTROL_FILE)
  const before = await readControlAddress(dataFolder)
  if (before !== null) await removeStaleFolder(before.socket)
  const address: ControlAddress = { socket: join(privateFolder, 'control.sock'), pid: process.pid }
  // In a folder of mode 0700, other users cannot reach the socket, even if its own mode allows it.
  server.listen(address.socket)
  await once(server, 'listening')
  await writeFile(file, JSON.stringify(address), { mode: 0o600 })
  return async () => {
    await rm(file, { force: true })
    await close(server)
  }
}

/**
 * Opens the control socket at the operator's path. Only this user can connect to the socket (mode
 * 0600). Replaces the socket of a killed gateway. Rejects with StartFailure if a process answers at
 * the path, or if the socket cannot be made.
 */
export async function openControlAt(
  server: Server,
  socketPath: string,
): Promise<() => Promise<void>> {
  try {
    await removeStaleSocket(socketPath)
    await listenPrivately(server, socketPath)
  } catch (error) {
    if (error instanceof StartFailure) throw error
    throw new StartFailure(
      `control: the gateway cannot listen on CONTROL_SOCKET ${socketPath} (${systemCodeOf(error) ?? 'unknown fault'})`,
    )
  }
  return () => close(server)
}

async function close(server: Server): Promise<void> {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
}

/**
 * The umask gives the socket its mode from the first moment on. Without `exclusive`, the first
 * process would bind the socket for a worker of node:cluster, with its own umask.
 */
async function listenPrivately(server: Server, socketPath: string): Promise<void> {
  const umask = process.umask(0o177)
  try {
    server.listen({ path: socketPath, exclusive: true })
  } finally {
    process.umask(umask)
  }
  await once(server, 'listening')
}

async function removeStaleSocket(socketPath: string): Promise<void> {
  const found = await lstat(socketPath).catch(() => null)
  if (found === null) return
  const inUse = new StartFailure(`control: CONTROL_SOCKET ${socketPath} is in use`)
  if (!found.isSocket() || (await isAnswered(socketPath))) throw inUse
  await rm(socketPath, { force: true })
}

/**
 * Serves the routes of administrators and of the operator on the control socket. No key is needed:
 * the socket's permissions decide who may connect. The server does not listen yet.
 */
export function createControlServer({
  routes,
  processes,
  now,
  makeRequestId,
  log,
}: {
  readonly routes: readonly Route[]
  /** Number of the gateway's processes. */
  readonly processes: number
  readonly now: () => number
  readonly makeRequestId: () => string
  readonly log: Logger
}): Server {
  const served = routes.filter(({ scope }) => scope === 'admin' || scope === 'operator')
  const router = createRouter(served, () => [recognizeOperator], {
    signals: createCallSignals(),
    memory: createMemoryBudget(MEMORY_BYTES_MAX),
    rate: LEAST_RATE,
    keepAliveMs: KEEP_ALIVE_MS,
    now,
    log,
  })
  const koa = new Koa<RequestState>()
  koa.on('error', (error: unknown) => log.debug({ err: error }, 'connection failed'))
  koa.use((context, next) => {
    context.set(PROCESSES_HEADER, String(processes))
    return next()
  })
  koa.use(
    openRequest({
      now,
      makeRequestId,
      logsRequests: false,
      trustedProxies: [],
      faceOf: () => OPENAI_FACE,
      log,
    }),
  )
  koa.use(answerErrors({ now, log, paths: served.map(({ path }) => path) }))
  koa.use(router.routes())
  koa.use(router.allowedMethods())
  return createHttpServer(koa.callback())
}

/** The user id is only a claim: each client of the socket counts as the operator. */
const recognizeOperator: ApiMiddleware = (context, next) => {
  const uid = context.req.headers[OPERATOR_UID_HEADER]
  const who = nameOperator(typeof uid === 'string' ? uid : null)
  context.state.operator = { who, accountId: null, from: 'control socket' }
  return next()
}
