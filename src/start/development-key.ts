import { chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ApiKeys } from '../accounts/api-keys.ts'
import { SCOPES } from '../api/scopes.ts'

/** File of the data folder that keeps the key which is made on first start. */
export const KEY_FILE = 'api-key'
/** Account that it belongs to. */
export const DEVELOPMENT_ACCOUNT = 'development'

/**
 * Gives the key in the data folder, or makes one that may do everything and keeps it there, readable by its user alone: also when the one that
 * is there is no longer valid, because the database is another or it was revoked.
 */
export async function openDevelopmentKey(dataFolder: string, keys: ApiKeys): Promise<string> {
  const file = join(dataFolder, KEY_FILE)
  const kept = (await readFile(file, 'utf8').catch(() => '')).trim()
  if (kept !== '' && (await keys.authenticate(kept)) !== null) return kept
  const { text } = await keys.create({
    accountName: DEVELOPMENT_ACCOUNT,
    name: 'made on first start',
    scopes: SCOPES,
  })
  await writeFile(file, `${text}\n`, { mode: 0o600 })
  // The mode above is for a new file alone.
  await chmod(file, 0o600)
  return text
}
