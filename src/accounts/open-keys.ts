import { randomBytes } from 'node:crypto'
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Operator, SCOPES } from '../api/context.ts'
import type { Home } from '../storage/data-folder.ts'
import type { Database } from '../storage/database.ts'
import type { AdminLog, NewAct } from './admin-log-store.ts'
import { type ApiKeyFacts, type ApiKeys, createApiKeys } from './api-keys.ts'
import { createKeysStore } from './keys-store.ts'

/** File in the data folder that holds the key of the first start. */
export const KEY_FILE = 'api-key'
const DEVELOPMENT_ACCOUNT = 'development'

/** The author of the first key. */
const GATEWAY: Operator = { who: 'gateway', accountId: null, from: 'first start' }

/** `shown`: the key to show to the user, or null without a data folder. */
type OpenedKeys = { readonly keys: ApiKeys; readonly shown: string | null }

export function creationOf({ id, accountName, name, scopes, expiresAt }: ApiKeyFacts): NewAct {
  const details = { account: accountName, name, scopes, expires_at: expiresAt }
  return { kind: 'key.create', target: id, details }
}

/**
 * Returns a record for the key, and one for each key that was revoked with it. `ids` is null when
 * no key has this id.
 */
export function revocationsOf(id: string, ids: readonly string[] | null): readonly NewAct[] {
  const others = (ids ?? []).filter((other) => other !== id)
  const outcome = ids === null ? 'unknown' : 'revoked'
  return [
    { kind: 'key.revoke', target: id, outcome },
    ...others.map((target) => ({ kind: 'key.revoke', target, outcome: `revoked with ${id}` })),
  ]
}

/** `database` may be a transaction. */
export function keysIn(database: Pick<Database, 'queries'>): ApiKeys {
  return createApiKeys({ keys: createKeysStore(database), now: Date.now, random: randomBytes })
}

/**
 * With a data folder, one key is valid from the first start on: the configured key, or the key in
 * the folder's file.
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
    /** Only tests set this member. */
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
 * Returns the key in the file. If this key is missing, revoked, or from a different database, makes
 * a new key with all rights. Only this user can read the file.
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
    (inside) => keysIn(inside).create({ ...order, accountName: DEVELOPMENT_ACCOUNT }),
    ({ key }) => [creationOf(key)],
  )
  await writeFile(file, `${text}\n`, { mode: 0o600 })
  // The mode above applies only to a new file.
  await chmod(file, 0o600)
  return text
}
