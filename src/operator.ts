import { accountRoutes } from './accounts/account-routes.ts'
import { createAccounts } from './accounts/accounts.ts'
import { adminLogRoutes } from './accounts/admin-log-routes.ts'
import type { AdminLog } from './accounts/admin-log-store.ts'
import type { ApiKeys } from './accounts/api-keys.ts'
import { createBudgetsStore } from './accounts/budgets-store.ts'
import { keyRoutes } from './accounts/key-routes.ts'
import { createKeysStore } from './accounts/keys-store.ts'
import type { Tiers } from './accounts/limits/tiers.ts'
import { createManagedKeys } from './accounts/managed-keys.ts'
import { keysOver } from './accounts/open-keys.ts'
import { createOperations } from './accounts/operations.ts'
import { recordOperations } from './accounts/recorded-operations.ts'
import { createUsageOperations, createUsageStore } from './accounts/usage-store.ts'
import { operateBy } from './api/admin-calls.ts'
import { adminRoutes } from './api/admin-routes.ts'
import { createClientAddresses } from './api/client-address.ts'
import { openControl, openControlAt } from './api/control-server.ts'
import type { Route } from './api/route.ts'
import type { Anchoring } from './chain/anchoring.ts'
import { createEnclaveOperations, type EnclavePool } from './enclaves/enclave-pool.ts'
import { unixMs } from './runtime/clock.ts'
import type { OnStarted } from './runtime/starting.ts'
import type { Home } from './storage/data-folder.ts'
import type { Database } from './storage/database.ts'
import { createErasureOperations } from './verified/records/erasures.ts'
import { createErasuresStore } from './verified/records/erasures-store.ts'
import { createContentOperations } from './verified/records/reencryption-store.ts'

/**
 * Opens what the operator and administrators do: over control sockets, and over HTTP, where holders
 * of keys manage theirs.
 */
export async function openOperator(
  config: { readonly controlSocket: string | null; readonly trustedProxies: readonly string[] },
  parts: {
    readonly database: Database
    readonly home: Home | null
    readonly adminLog: AdminLog
    readonly keys: ApiKeys
    readonly tiers: () => Tiers
    readonly enclaves: EnclavePool
    readonly anchoring: Pick<Anchoring, 'operations'>
    readonly onStarted: OnStarted
  },
): Promise<{
  /** Of keys, and of what was done. */
  readonly keyRoutes: readonly Route[]
  /** Of everything else that administrators do. */
  readonly adminRoutes: readonly Route[]
}> {
  const { database, home, adminLog, keys, tiers, enclaves, anchoring, onStarted } = parts
  const tierNames = () => [...tiers().byName.keys()]
  const operations = recordOperations({
    database,
    log: adminLog,
    make(inside) {
      const store = createKeysStore(inside)
      const accounts = createAccounts({ keys: store, tiers: tierNames, now: Date.now })
      return {
        ...createOperations({ keys: keysOver(store), accounts }),
        budgets: createBudgetsStore(inside),
        usage: createUsageOperations(createUsageStore(inside)),
        ...createErasureOperations(createErasuresStore(inside)),
        content: createContentOperations(database),
        enclaves: createEnclaveOperations(enclaves),
        relayers: anchoring.operations,
      }
    },
  })
  if (home !== null) onStarted(await openControl(operations, home))
  if (config.controlSocket !== null)
    onStarted(await openControlAt(operations, config.controlSocket))
  const clientOf = createClientAddresses(config.trustedProxies)
  const budgets = createBudgetsStore(database)
  const byAdmin = operateBy(operations, clientOf)
  return {
    keyRoutes: [
      ...keyRoutes(createManagedKeys({ keys, budgets, adminLog, now: unixMs }), clientOf),
      ...adminLogRoutes(adminLog),
    ],
    adminRoutes: [
      ...accountRoutes(byAdmin, {
        pageAccounts: createKeysStore(database).pageAccounts,
        listBudgets: budgets.list,
      }),
      ...adminRoutes(byAdmin),
    ],
  }
}
