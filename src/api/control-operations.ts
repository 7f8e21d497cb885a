import type { Scope } from './scopes.ts'

/** An API key as it is shown: never the secret. Times are Unix seconds. */
export type KeyDescription = {
  readonly id: string
  readonly account: string
  readonly name: string
  readonly scopes: readonly Scope[]
  readonly created_at: number
  /** Null for never. */
  readonly expires_at: number | null
  /** Null while it is valid. */
  readonly revoked_at: number | null
  /** To the minute; null before the first use. */
  readonly last_used_at: number | null
}

/** A key to be made. */
export type KeyOrder = {
  /** By name; made when there is none. */
  readonly account: string
  readonly name: string
  readonly scopes: readonly Scope[]
  /** Unix seconds; null for never. */
  readonly expires_at: number | null
}

/** What can be done with API keys, wherever the database is. */
export type KeyOperations = {
  /** Makes a key. The only time it is shown. */
  create(order: KeyOrder): Promise<KeyDescription & { readonly key: string }>
  list(): Promise<readonly KeyDescription[]>
  /** Ends a key within a second. `unknown` for an id that no key has; revoking twice is no fault. */
  revoke(id: string): Promise<'revoked' | 'unknown'>
}

/** An account as it is shown. */
export type AccountDescription = {
  readonly id: string
  readonly name: string
  /** Null for the standard one. */
  readonly tier: string | null
  /** Unix seconds. */
  readonly created_at: number
}

/** An account, and the tier that it is to be in; null for the standard one. */
export type AccountOrder = { readonly name: string; readonly tier: string | null }

/** What can be done with accounts, wherever the database is. */
export type AccountOperations = {
  /** Makes the account, when there is none of that name; its tier is left as it is. */
  open(name: string): Promise<AccountDescription>
  list(): Promise<readonly AccountDescription[]>
  /** `unknown_tier` for one that the gateway does not have; where that is not known, any is taken. */
  setTier(order: AccountOrder): Promise<'set' | 'unknown_account' | 'unknown_tier'>
}

/** An enclave as it is shown. */
export type EnclaveDescription = {
  /** `unix:/path`, by which it is named. */
  readonly url: string
  /** `usable`, `draining`, `drained`, `refused`, `unreachable` or `connecting` (src/enclaves/endpoint-state.ts). */
  readonly state: string
  /** Null before it answered. */
  readonly notary: string | null
  /** Calls in flight. */
  readonly calls: number
  /** Leaves of its log in the database; null when it is not followed. */
  readonly committed: number | null
  /** Why it is refused or out of reach; else empty. */
  readonly fault: string
}

/** What can be done with the enclaves of a running gateway. Lasts until it stops: then ENCLAVE_URL says which there are. */
export type EnclaveOperations = {
  list(): Promise<readonly EnclaveDescription[]>
  /** Takes it into use once it is checked; one that was drained, again. */
  add(url: string): Promise<'done' | 'invalid' | 'limit'>
  /** No new calls. Does not wait until it is drained, which `list` shows. */
  drain(url: string): Promise<'done' | 'invalid' | 'unknown'>
  /** Forgets one that is not in use. */
  remove(url: string): Promise<'done' | 'invalid' | 'unknown' | 'in_use'>
}

/** An account that pays or paid for anchors, as it is shown. */
export type RelayerDescription = {
  /** 0x, lower case. */
  readonly address: string
  /** Whether the gateway that was asked signs with it. */
  readonly current: boolean
  /** Nonce of its next anchor in the database; null before the first. */
  readonly next_nonce: number | null
  /** Anchors that are in no block. */
  readonly waiting: number
  /** The same, and those in a block without enough confirmations. */
  readonly unconfirmed: number
  /** When the oldest unconfirmed one was made, Unix seconds; null for none. */
  readonly oldest_at: number | null
  /**
   * What the chain has: decimal wei, transactions in blocks, and those with the ones that wait for
   * one. Null while it is away.
   */
  readonly balance_wei: string | null
  readonly chain_nonce: number | null
  readonly pending_nonce: number | null
  /** Why the chain could not be asked; else empty. */
  readonly fault: string
}

/** What can be asked of a running gateway about the relayers of its database and chain. */
export type RelayerOperations = {
  /** The current one first. */
  list(): Promise<readonly RelayerDescription[]>
}

/** What the operator does on the command line. */
export type Operations = { readonly keys: KeyOperations; readonly accounts: AccountOperations }

/** The same, and what only a running gateway can do. */
export type GatewayOperations = Operations & {
  readonly enclaves: EnclaveOperations
  readonly relayers: RelayerOperations
}

/** Longest name of an account or a key, characters. */
export const NAME_LENGTH_MAX = 100

/** Whether text can name an account or a key: 1 to NAME_LENGTH_MAX characters, none of them for control. */
export function isName(text: string): boolean {
  return text.length > 0 && text.length <= NAME_LENGTH_MAX && !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(text)
}

/** Name of the file in the data folder that says where the running gateway can be asked. */
export const CONTROL_FILE = 'control.json'

/** What CONTROL_FILE holds. */
export type ControlAddress = { readonly socket: string; readonly pid: number }
