import { FormatError } from '../errors.ts'

export type JsonErrorCode =
  | 'invalid_utf8' //     bytes that are not UTF-8
  | 'syntax' //           not JSON (RFC 8259), or a byte order mark before it
  | 'duplicate_key' //    two members of one object have the same name
  | 'unsafe_integer' //   a number beyond ±(2^53-1) that would change if parsed as a double
  | 'inexact_number' //   stored evidence only: a number that would change if parsed as a double
  | 'number_overflow' //  a number beyond the largest double
  | 'lone_surrogate' //   half of a surrogate pair in a string or name
  | 'too_deep' //         arrays and objects are nested too deep
  | 'too_many' //         more arrays, objects, members or items in all than allowed

/** JSON was refused. `code` is the reason, and `path` and `offset` are the place. */
export class JsonError extends FormatError {
  override readonly name = 'JsonError'
  declare readonly code: JsonErrorCode
  /**
   * Member names and array indexes from the top to the value. The sender wrote the names, so do not
   * show them to others.
   */
  readonly path: readonly (string | number)[]
  /** Bytes before the fault, or UTF-16 code units if the input was a string. */
  readonly offset: number

  constructor(
    code: JsonErrorCode,
    message: string,
    at: { readonly path: readonly (string | number)[]; readonly offset: number },
  ) {
    super(code, `${message}, at offset ${at.offset}`)
    this.path = at.path
    this.offset = at.offset
  }
}
