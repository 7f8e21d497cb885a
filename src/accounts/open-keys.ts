import { randomBytes } from 'node:crypto'
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Operator, SCOPES } from '../api/context.ts'
import type { Home } from '../storage/data-folder.ts'
import type { Database } from '../storage/database.ts'
import type { AdminLog, NewAct } from './admin-log-store.ts'
import { type ApiKeyFacts, type ApiKeys, createApiKeys } from './api-keys.ts'
import { createKeysStore, type KeysStore } from './keys-store.ts'

/** File of the data folder that keeps the key which is made on first start. */
export const KEY_FILE = 'api-key'
/** Account that it belongs to. */
const DEVELOPMENT_ACCOUNT = 'development'

/** Who makes the first key. */
const GATEWAY: Operator = { who: 'gateway', accountId: null, from: 'first start' }

/** The keys, and the one to show: without a data folder none is made. */
type OpenedKeys = { readonly keys: ApiKeys; readonly shown: string | null }

/** What is recorded of a key that was made. */
export function creationOf({ id, accountName, name, scopes, expiresAt }: ApiKeyFacts): NewAct {
  const details = { account: accountName, name, scopes, expires_at: expiresAt }
  return { kind: 'key.create', target: id, details }
}

/**
 * What is recorded when a key ends: the key, and each that ended with it. `ids`: null where no key
 * has this id.
 */
export function revocationsOf(id: string, ids: readonly string[] | null): readonly NewAct[] {
  const others = (ids ?? []).filter((other) => other !== id)
  const outcome = ids === null ? 'unknown' : 'revoked'
  return [
    { kind: 'key.revoke', target: id, outcome },
    ...others.map((target) => ({ kind: 'key.revoke', target, outcome: `revoked with ${id}` })),
  ]
}

/** Gives the keys of a store, for an operation inside of a transaction as well. */
export function keysOver(store: KeysStore): ApiKeys {
  return createApiKeys({ keys: store, now: Date.now, random: randomBytes })
}

/**
 * Opens the keys. Where there is a data folder one is good from the first start on: that of the
 * configuration, or else the one that is kept in the folder.
 */
export async function openKeys(
  { devApiKey: fixed }: { readonly devApiKey: string | null },
  {
    database,
    home,
    adminLog,
    keys: own,
  }: {
    readonly database: Database
    readonly home: Home | null
    readonly adminLog: Pick<AdminLog, 'record'>
    /** A test's own. */
    readonly keys?: ApiKeys | undefined
  },
): Promise<OpenedKeys> {
  if (own !== undefined) return { keys: own, shown: null }
  const options = { keys: createKeysStore(database), now: Date.now, random: randomBytes }
  const keys = createApiKeys(options)
  if (home === null) return { keys, shown: null }
  if (fixed === null)
    return { keys, shown: await openDevelopmentKey(home.dataFolder, { keys, adminLog }) }
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
  { keys, adminLog }: { readonly keys: ApiKeys; readonly adminLog: Pick<AdminLog, 'record'> },
): Promise<string> {
  const file = join(dataFolder, KEY_FILE)
  const kept = (await readFile(file, 'utf8').catch(() => '')).trim()
  if (kept !== '' && (await keys.authenticate(kept)) !== null) return kept
  const order = { name: 'made on first start', scopes: SCOPES, expiresAt: null }
  const { text } = await adminLog.record(
    GATEWAY,
    (inside) =>
      keysOver(createKeysStore(inside)).create({ ...order, accountName: DEVELOPMENT_ACCOUNT }),
    ({ key }) => [creationOf(key)],
  )
  await writeFile(file, `${text}\n`, { mode: 0o600 })
  // The mode above is for a new file alone.
  await chmod(file, 0o600)
  return text
}
