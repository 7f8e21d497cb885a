import type {
  AccountDescription,
  AccountOperations,
  KeyDescription,
  KeyOperations,
  Operations,
} from '../api/control-operations.ts'
import type { Accounts } from './accounts.ts'
import type { ApiKeyFacts, ApiKeys } from './api-keys.ts'
import type { Account } from './keys-store.ts'

/** Gives the operator's operations over the keys and accounts of a database. */
export function createOperations({
  keys,
  accounts,
}: {
  readonly keys: Pick<ApiKeys, 'create' | 'list' | 'revoke'>
  readonly accounts: Accounts
}): Operations {
  return { keys: createKeyOperations(keys), accounts: createAccountOperations(accounts) }
}

function createKeyOperations(keys: Pick<ApiKeys, 'create' | 'list' | 'revoke'>): KeyOperations {
  return {
    create: async ({ account, name, scopes, expires_at: expiresAt }) => {
      const { text, key } = await keys.create({ accountName: account, name, scopes, expiresAt })
      return { ...describeKey(key), key: text }
    },
    list: async () => (await keys.list()).map(describeKey),
    revoke: async (id) => ((await keys.revoke(id)) ? 'revoked' : 'unknown'),
  }
}

function createAccountOperations(accounts: Accounts): AccountOperations {
  return {
    open: async (name) => describeAccount(await accounts.open(name)),
    list: async () => (await accounts.list()).map(describeAccount),
    setTier: ({ name, tier }) => accounts.setTier(name, tier),
  }
}

function describeKey(key: ApiKeyFacts): KeyDescription {
  return {
    id: key.id,
    account: key.accountName,
    name: key.name,
    scopes: key.scopes,
    created_at: key.createdAt,
    expires_at: key.expiresAt,
    revoked_at: key.revokedAt,
    last_used_at: key.lastUsedAt,
  }
}

function describeAccount({ id, name, tier, createdAt }: Account): AccountDescription {
  return { id, name, tier, created_at: createdAt }
}
