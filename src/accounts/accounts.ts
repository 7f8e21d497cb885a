import type { Account, KeysStore } from './keys-store.ts'

/** The customers. Methods throw the driver's error when the database fails. */
export type Accounts = {
  /** Finds or makes the account of this name. */
  open(name: string): Promise<Account>
  /** All accounts, oldest first. */
  list(): Promise<readonly Account[]>
  /**
   * Puts an account into a tier, null for the standard one; every gateway heeds it within a second.
   */
  setTier(name: string, tier: string | null): Promise<'set' | 'unknown_account' | 'unknown_tier'>
}

/**
 * Accounts over the store. `tiers` are the names that there are; null when that is not known, and
 * any is taken.
 */
export function createAccounts(options: {
  readonly keys: Pick<KeysStore, 'openAccount' | 'listAccounts' | 'setTier'>
  readonly tiers: readonly string[] | null
  /** Unix milliseconds. */
  readonly now: () => number
}): Accounts {
  const { keys, tiers, now } = options
  return {
    open: (name) =>
      keys.openAccount({ id: crypto.randomUUID(), name, createdAt: Math.floor(now() / 1000) }),
    list: () => keys.listAccounts(),
    async setTier(name, tier) {
      if (tier !== null && tiers !== null && !tiers.includes(tier)) return 'unknown_tier'
      return (await keys.setTier(name, tier)) ? 'set' : 'unknown_account'
    },
  }
}
