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
}): Pick<Operations, 'keys' | 'accounts'> {
  return { keys: createKeyOperations(keys), accounts: createAccountOperations(accounts) }
}

function createKeyOperations(keys: Pick<ApiKeys, 'create' | 'list' | 'revoke'>): KeyOperations {
  return {
    create: async ({ account, name, scopes, expires_at: expiresAt }) => {
      const order = { accountName: account, name, scopes, expiresAt }
      const { text, key, isAccountNew } = await keys.create(order)
      return { ...describeKey(key), key: text, is_account_new: isAccountNew }
    },
    list: async () => (await keys.list()).map(describeKey),
    revoke: async (id) => (await keys.revoke(id)) ?? 'unknown',
  }
}

function createAccountOperations(accounts: Accounts): AccountOperations {
  return {
    async open(name) {
      const account = await accounts.open(name)
      return { ...describeAccount(account), is_new: account.isNew }
    },
    list: async () => (await accounts.list()).map(describeAccount),
    setTier: ({ name, tier }) => accounts.setTier(name, tier),
    setState: ({ name, state }) => accounts.setState(name, state),
  }
}

function describeKey(key: ApiKeyFacts): KeyDescription {
  return {
    id: key.id,
    account: key.accountName,
    name: key.name,
    scopes: key.scopes,
    made_by: key.madeBy,
    created_at: key.createdAt,
    expires_at: key.expiresAt,
    revoked_at: key.revokedAt,
    last_used_at: key.lastUsedAt,
  }
}

/** An account as it is shown. */
export function describeAccount(account: Account): AccountDescription {
  const { id, name, tier, createdAt, disabledAt } = account
  return { id, name, tier, created_at: createdAt, disabled_at: disabledAt }
}
