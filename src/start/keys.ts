import { randomBytes } from 'node:crypto'
import { createAccounts } from '../accounts/accounts.ts'
import { type ApiKeys, createApiKeys } from '../accounts/api-keys.ts'
import { createKeysStore } from '../accounts/keys-store.ts'
import { createOperations } from '../accounts/operations.ts'
import type { EnclaveOperations, RelayerOperations } from '../api/control-operations.ts'
import type { GatewayConfig } from '../config.ts'
import type { Database } from '../storage/database.ts'
import { openControl, openControlAt } from './control.ts'
import { DEVELOPMENT_ACCOUNT, openDevelopmentKey } from './development-key.ts'
import type { Home } from './home.ts'

/** The keys, and the one to show: in production none is made. */
export type OpenedKeys = { readonly keys: ApiKeys; readonly shown: string | null }

/**
 * Opens the keys and, where there is a data folder (`home`) or a place for it, the socket over
 * which they, the accounts and the enclaves are managed, and the relayers shown; how to close that
 * is given to `onStarted`. `tiers`: names of those that an account may have.
 */
export async function openKeys(
  { devApiKey, controlSocket }: GatewayConfig,
  {
    database,
    home,
    tiers,
    enclaves,
    relayers,
    onStarted,
  }: {
    readonly database: Database
    readonly home: Home | null
    readonly tiers: readonly string[]
    readonly enclaves: EnclaveOperations
    readonly relayers: RelayerOperations
    readonly onStarted: (stop: () => Promise<void>) => void
  },
): Promise<OpenedKeys> {
  const store = createKeysStore(database)
  const opened = await openDefaultKeys(
    { keys: store, now: Date.now, random: randomBytes },
    { devApiKey, home },
  )
  const accounts = createAccounts({ keys: store, tiers, now: Date.now })
  const operations = { ...createOperations({ keys: opened.keys, accounts }), enclaves, relayers }
  if (home !== null) onStarted(await openControl(operations, home))
  if (controlSocket !== null) onStarted(await openControlAt(operations, controlSocket))
  return opened
}

async function openDefaultKeys(
  options: Parameters<typeof createApiKeys>[0],
  { devApiKey, home }: Pick<GatewayConfig, 'devApiKey'> & { readonly home: Home | null },
): Promise<OpenedKeys> {
  const keys = createApiKeys(options)
  if (home === null) return { keys, shown: null }
  if (devApiKey === null) return { keys, shown: await openDevelopmentKey(home.dataFolder, keys) }
  const { id: accountId } = await keys.openAccount(DEVELOPMENT_ACCOUNT)
  return { keys: createApiKeys({ ...options, fixedKey: { text: devApiKey, accountId } }), shown: devApiKey }
}
