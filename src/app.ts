import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Router } from '@koa/router'
import Koa from 'koa'
import { ApiError } from './errors.ts'
import { createAdmission } from './http/admission.ts'
import { type CallSignals, createCallSignals } from './http/call-signals.ts'
import type { RequestState } from './http/context.ts'
import { createHttpServer } from './http/server.ts'
import type { Logger } from './logger.ts'
import { answerErrors } from './middleware/answer-errors.ts'
import { type Authenticator, authenticate } from './middleware/authenticate.ts'
import { openRequest } from './middleware/open-request.ts'
import { refuseWhenClosing } from './middleware/refuse-when-closing.ts'
import { addHistoryRoutes } from './routes/history.ts'
import { addServiceRoutes } from './routes/service.ts'
import { addVerifiedCompletionRoutes } from './routes/verified-completions.ts'
import { createAttestations } from './services/attestations.ts'
import type { Committer } from './services/committer.ts'
import type { EnclaveClient } from './services/enclave-client.ts'
import { createHistory } from './services/history.ts'
import { COMMIT_TIMEOUT_MS, createVerifiedCompletions } from './services/verified-completions.ts'
import type { RecordsStore } from './stores/records.ts'

/** What the app is made of; main builds these, and ends them after the app. */
export type AppDependencies = {
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'complete' | 'attestation'>
  readonly committer: Pick<Committer, 'waitFor' | 'status'>
  readonly records: Pick<RecordsStore, 'list' | 'findByHash'>
  readonly keys: Authenticator
  /** The operator's credentials, by provider name. */
  readonly credentials: ReadonlyMap<string, string>
  readonly settings: AppSettings
  readonly log: Logger
  /** Milliseconds; a fraction is welcome. */
  readonly now: () => number
  /** A new `x-request-id`, at most 128 of [A-Za-z0-9_.:-]. */
  readonly makeRequestId: () => string
}

export type AppSettings = {
  /** Whether every account may see everybody's completions. */
  readonly isHistoryOpen: boolean
  readonly keepAliveMs: number
  readonly bodyBytesMax: number
  /** How long close() lets running calls go on. */
  readonly shutdownGraceMs: number
  /** One log line per call. */
  readonly logsRequests: boolean
}

/** The gateway's HTTP API. */
export type App = {
  readonly server: Server
  /** Begins to listen; port 0 takes a free one. Gives where. Throws the system's error when the port is taken. */
  listen(at: { readonly host: string; readonly port: number }): Promise<AddressInfo>
  /**
   * Stops: takes no new calls, lets those under way finish for shutdownGraceMs, then ends them with `shutting_down`, and
   * shortly after cuts their connections. Resolves when none is left. The committer and the enclave must be running until then.
   */
  close(): Promise<void>
}

/** Completion calls at once, and the bytes of their bodies together; beyond that they are refused with 503. */
export const CALLS_MAX = 512
export const BODIES_BYTES_MAX = 512 * 1024 * 1024

/** How long calls that were ended by force have to say so to their callers. */
const FAREWELL_MS = 1_000

/** Builds the API out of its parts. Nothing runs before listen(). */
export function createApp(dependencies: AppDependencies): App {
  const signals = createCallSignals()
  let isClosing = false
  const koa = createKoa(dependencies, { signals, isClosing: () => isClosing })
  const server = createHttpServer(koa.callback())

  function close(): Promise<void> {
    isClosing = true
    const farewell = () => signals.abortAll(new ApiError('shutting_down', 'This instance is shutting down'))
    const { shutdownGraceMs } = dependencies.settings
    // Connections that fall idle after close() are closed only by asking again.
    const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS)
    const timers = [
      setTimeout(farewell, shutdownGraceMs),
      setTimeout(() => server.closeAllConnections(), shutdownGraceMs + FAREWELL_MS),
    ]
    return new Promise((resolve) => {
      server.close(() => {
        clearInterval(sweep)
        for (const timer of timers) clearTimeout(timer)
        resolve()
      })
    })
  }

  return { server, listen: (at) => listen(server, at), close }
}

const SWEEP_MS = 50

type Lifecycle = { readonly signals: CallSignals; readonly isClosing: () => boolean }

function createKoa(dependencies: AppDependencies, { signals, isClosing }: Lifecycle): Koa<RequestState> {
  const { now, log, makeRequestId, settings } = dependencies
  const router = new Router<RequestState>({ sensitive: true })
  addRoutes(router, dependencies, signals)
  const koa = new Koa<RequestState>()
  // Everything that is thrown in a call is answered and logged by answerErrors; here come connections that broke.
  koa.on('error', (error: unknown) => log.debug({ err: error }, 'connection failed'))
  koa.use(openRequest({ now, makeRequestId, logsRequests: settings.logsRequests, log }))
  koa.use(answerErrors({ now, log }))
  koa.use(refuseWhenClosing(isClosing))
  koa.use(router.routes())
  koa.use(router.allowedMethods())
  return koa
}

function addRoutes(router: Router<RequestState>, dependencies: AppDependencies, signals: CallSignals): void {
  const { enclave, committer, records, credentials, settings, log, now } = dependencies
  const authenticated = authenticate(dependencies.keys)
  addServiceRoutes(router, createAttestations({ enclave, now }))
  addHistoryRoutes(router, {
    history: createHistory({ records, isOpen: settings.isHistoryOpen }),
    authenticated,
  })
  addVerifiedCompletionRoutes(router, {
    completions: createVerifiedCompletions({
      enclave,
      committer,
      credentials,
      commitTimeoutMs: COMMIT_TIMEOUT_MS,
      log,
    }),
    authenticated,
    admission: createAdmission({ callsMax: CALLS_MAX, bytesMax: BODIES_BYTES_MAX }),
    signals,
    bodyBytesMax: settings.bodyBytesMax,
    keepAliveMs: settings.keepAliveMs,
    now,
    log,
  })
}

function listen(server: Server, { host, port }: { readonly host: string; readonly port: number }) {
  return new Promise<AddressInfo>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      resolve(server.address() as AddressInfo)
    })
  })
}
