import { accountActs } from './accounts/account-acts.ts'
import { actRoutes } from './accounts/acts.ts'
import { adminLogActs } from './accounts/admin-log-acts.ts'
import type { AdminLog } from './accounts/admin-log-store.ts'
import type { ApiKeys } from './accounts/api-keys.ts'
import { budgetActs } from './accounts/budget-acts.ts'
import { createBudgetsStore } from './accounts/budgets-store.ts'
import { keyActs } from './accounts/key-acts.ts'
import { keyRoutes } from './accounts/key-routes.ts'
import type { Tiers } from './accounts/limits/tiers.ts'
import { usageActs } from './accounts/usage-acts.ts'
import { createControlServer, openControl, openControlAt } from './api/control-server.ts'
import { ApiError } from './api/errors.ts'
import type { Route } from './api/route.ts'
import type { Anchoring } from './chain/anchoring.ts'
import { relayerActs } from './chain/relayer-acts.ts'
import { enclaveActs } from './enclaves/enclave-acts.ts'
import type { EnclavePool } from './enclaves/enclave-pool.ts'
import type { Opening } from './observability/logger.ts'
import { unixMs } from './runtime/clock.ts'
import { makeId } from './runtime/make-id.ts'
import type { Home } from './storage/data-folder.ts'
import type { Database } from './storage/database.ts'
import { contentActs } from './verified/records/content-acts.ts'
import { erasureActs } from './verified/records/erasure-acts.ts'

/**
 * Opens the routes for the operator and administrators, and the routes for accounts to manage their
 * keys.
 */
export function openOperator(
  { processes }: { readonly processes: number },
  {
    database,
    adminLog,
    keys,
    tiers,
    enclaves,
    anchoring,
  }: {
    readonly database: Database
    readonly adminLog: AdminLog
    readonly keys: ApiKeys
    readonly tiers: () => Tiers
    readonly enclaves: EnclavePool
    readonly anchoring: Pick<Anchoring, 'listRelayers'>
  },
): {
  /** Routes for keys and for the administrative log. */
  readonly keyRoutes: readonly Route[]
  /** All other routes for administrators, some of them only on the control socket. */
  readonly adminRoutes: readonly Route[]
} {
  const tierNames = () => [...tiers().byName.keys()]
  const { listRelayers } = anchoring
  const acting = { database, adminLog, tiers: tierNames, enclaves, listRelayers }
  const budgets = createBudgetsStore(database)
  return {
    keyRoutes: [
      ...keyRoutes({ keys, budgets, adminLog, now: Date.now }),
      ...actRoutes(adminLogActs, acting),
    ],
    adminRoutes: [
      ...actRoutes(accountActs, acting),
      ...actRoutes(budgetActs, acting),
      ...actRoutes(enclaveActs, acting).map((route) => (processes > 1 ? ofAll(route) : route)),
      ...actRoutes(relayerActs, acting),
      ...actRoutes(keyActs, acting),
      ...actRoutes(usageActs, acting),
      ...actRoutes(erasureActs, acting),
      ...actRoutes(contentActs, acting),
    ],
  }
}

/**
 * Each process has its own enclave pool. node:cluster sends a call at the shared port to one of the
 * processes, so there the route only reads. Each process has its own control socket.
 */
function ofAll(route: Route): Route {
  if (route.method === 'GET') return route
  return {
    ...route,
    async serve(context, server) {
      if (context.state.operator === null)
        throw new ApiError(
          'one_of_many_processes',
          'A call reaches one process of this gateway. Set CONTROL_SOCKET and use affidavit enclaves, ' +
            'which acts at all',
        )
      await route.serve(context, server)
    },
  }
}

/** Opens the configured control sockets, which serve the operator's routes. */
export async function openControlSockets(
  {
    controlSocket,
    processes,
  }: { readonly controlSocket: string | null; readonly processes: number },
  {
    routes,
    home,
    log,
    onStarted,
  }: Opening & { readonly routes: readonly Route[]; readonly home: Home | null },
): Promise<void> {
  const serve = () =>
    createControlServer({ routes, processes, now: unixMs, makeRequestId: makeId, log })
  if (home !== null) onStarted(await openControl(serve(), home))
  if (controlSocket !== null) onStarted(await openControlAt(serve(), controlSocket))
}
