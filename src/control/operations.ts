/** An API key as it is shown: never the secret. Times are Unix seconds. */
export type KeyDescription = {
  readonly id: string
  readonly account: string
  readonly name: string
  readonly created_at: number
  /** Null while it is valid. */
  readonly revoked_at: number | null
}

/** What can be done with API keys, wherever the database is. */
export type KeyOperations = {
  /** Makes a key for the account of that name, and the account when there is none. The only time the key is shown. */
  create(options: {
    readonly account: string
    readonly name: string
  }): Promise<KeyDescription & { readonly key: string }>
  list(): Promise<readonly KeyDescription[]>
  /** Ends a key within a second. `unknown` for an id that no key has; revoking twice is no fault. */
  revoke(id: string): Promise<'revoked' | 'unknown'>
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
