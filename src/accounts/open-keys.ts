import { randomBytes } from 'node:crypto'
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { SCOPES } from '../api/context.ts'
import type { Operator } from '../api/control-operations.ts'
import type { AdminLog } from './admin-log-store.ts'
import { type ApiKeys, createApiKeys } from './api-keys.ts'
import { createKeysStore, type KeysStore } from './keys-store.ts'

/** File of the data folder that keeps the key which is made on first start. */
export const KEY_FILE = 'api-key'
/** Account that it belongs to. */
const DEVELOPMENT_ACCOUNT = 'development'

/** Who makes the first key. */
const GATEWAY: Operator = { who: 'gateway', accountId: null, from: 'first start' }

/** The keys, and the one to show: without a data folder none is made. */
type OpenedKeys = { readonly keys: ApiKeys; readonly shown: string | null }

/** Gives the keys of a store, for an operation inside of a transaction as well. */
export function keysOver(store: KeysStore): ApiKeys {
  return createApiKeys({ keys: store, now: Date.now, random: randomBytes })
}

/**
 * Opens the keys. Where there is a data folder one is good from the first start on: `fixed`, or
 * else the one that is kept in the folder.
 */
export async function openKeys(
  store: KeysStore,
  {
    fixed,
    dataFolder,
    adminLog,
  }: {
    readonly fixed: string | null
    readonly dataFolder: string | null
    readonly adminLog: Pick<AdminLog, 'within'>
  },
): Promise<OpenedKeys> {
  const options = { keys: store, now: Date.now, random: randomBytes }
  const keys = createApiKeys(options)
  if (dataFolder === null) return { keys, shown: null }
  if (fixed === null)
    return { keys, shown: await openDevelopmentKey(dataFolder, { keys, adminLog }) }
  const { id: accountId } = await keys.openAccount(DEVELOPMENT_ACCOUNT)
  return { keys: createApiKeys({ ...options, fixedKey: { text: fixed, accountId } }), shown: fixed }
}

/**
 * Gives the key in the data folder, or makes one that may do everything and keeps it there,
 * readable by its user alone: also when the one that is there is no longer valid, because the
 * database is another or it was revoked.
 */
async function openDevelopmentKey(
  dataFolder: string,
  { keys, adminLog }: { readonly keys: ApiKeys; readonly adminLog: Pick<AdminLog, 'within'> },
): Promise<string> {
  const file = join(dataFolder, KEY_FILE)
  const kept = (await readFile(file, 'utf8').catch(() => '')).trim()
  if (kept !== '' && (await keys.authenticate(kept)) !== null) return kept
  const text = await adminLog.within(GATEWAY, async (inside, record) => {
    const order = { name: 'made on first start', scopes: SCOPES, expiresAt: null }
    const made = await keysOver(createKeysStore(inside)).create({
      ...order,
      accountName: DEVELOPMENT_ACCOUNT,
    })
    const { name, scopes, expiresAt: expires_at } = order
    const details = { account: DEVELOPMENT_ACCOUNT, name, scopes, expires_at }
    await record({ kind: 'key.create', target: made.key.id, details })
    return made.text
  })
  await writeFile(file, `${text}\n`, { mode: 0o600 })
  // The mode above is for a new file alone.
  await chmod(file, 0o600)
  return text
}
