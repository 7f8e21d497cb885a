import type { ApiKeyFacts, ApiKeys } from '../services/api-keys.ts'
import type { KeyDescription, KeyOperations } from './operations.ts'

/** Gives the operator's key operations over the keys of a database. */
export function createKeyOperations(keys: Pick<ApiKeys, 'create' | 'list' | 'revoke'>): KeyOperations {
  return {
    create: async ({ account, name }) => {
      const { text, key } = await keys.create({ accountName: account, name })
      return { ...describe(key), key: text }
    },
    list: async () => (await keys.list()).map(describe),
    revoke: async (id) => ((await keys.revoke(id)) ? 'revoked' : 'unknown'),
  }
}

function describe({ id, accountName, name, createdAt, revokedAt }: ApiKeyFacts): KeyDescription {
  return { id, account: accountName, name, created_at: createdAt, revoked_at: revokedAt }
}
