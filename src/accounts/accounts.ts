import type { Account, KeysStore } from './keys-store.ts'

/** The customers. Methods throw the driver's error when the database fails. */
export type Accounts = {
  /** Finds or makes the account of this name. */
  open(name: string): Promise<Account & { readonly isNew: boolean }>
  /**
   * Puts an account into a tier, null for the standard one. It applies at every gateway within a
   * second.
   */
  setTier(name: string, tier: string | null): Promise<'set' | 'unknown_account' | 'unknown_tier'>
  /**
   * Disables or deletes an account, or takes it into use again. It applies at every gateway within
   * a second, and calls that run end as they would. A deleted account keeps its records, and does
   * not come back.
   */
  setState(name: string, state: AccountState): Promise<'set' | 'unknown_account'>
}

type AccountState = 'active' | 'disabled' | 'deleted'

/**
 * Accounts over the store. `tiers` gives the names that there are; null when that is not known,
 * and any is taken.
 */
export function createAccounts(options: {
  readonly keys: Pick<KeysStore, 'openAccount' | 'setTier' | 'setDisabled' | 'deleteAccount'>
  readonly tiers: (() => readonly string[]) | null
  /** Unix milliseconds. */
  readonly now: () => number
}): Accounts {
  const { keys, tiers, now } = options
  const unixSeconds = () => Math.floor(now() / 1000)
  return {
    open: (name) => keys.openAccount({ id: crypto.randomUUID(), name, createdAt: unixSeconds() }),
    async setTier(name, tier) {
      if (tier !== null && tiers !== null && !tiers().includes(tier)) return 'unknown_tier'
      return (await keys.setTier(name, tier)) ? 'set' : 'unknown_account'
    },
    async setState(name, state) {
      const isSet = await (state === 'deleted'
        ? keys.deleteAccount(name, unixSeconds())
        : keys.setDisabled(name, state === 'disabled' ? unixSeconds() : null))
      return isSet ? 'set' : 'unknown_account'
    },
  }
}
