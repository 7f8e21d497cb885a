import type { z } from 'zod'
import type { ErrorCode } from '../errors.ts'
import type { Scope } from '../scopes.ts'

/** A schema that has a name of its own in the document. */
export type NamedSchema = { readonly name: string; readonly schema: z.ZodType }

/** Parameters of one place: a schema of an object whose members they are. */
export type Parameters = z.ZodObject

/** One operation as the document has it. The routes themselves are in src/routes; a test holds the two against each other. */
export type Operation = {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** The router's pattern. */
  readonly path: string
  readonly tag: string
  readonly summary: string
  readonly description?: string
  /** Whether it asks for an API key. */
  readonly isKeyed: boolean
  /** What the key has to be for; without one, whatever it is for. */
  readonly scope?: Scope
  readonly pathParameters?: Parameters
  readonly query?: Parameters
  readonly headers?: Parameters
  readonly body?: NamedSchema & { readonly type?: 'multipart/form-data' }
  /** With the types of its content, when it is no JSON. */
  readonly reply: NamedSchema & { readonly types?: readonly string[] }
  /** Data of the events that it answers with when `stream` is true. */
  readonly events?: NamedSchema
  /** Codes of errors that are this operation's own, beside those that any has. */
  readonly errors?: readonly ErrorCode[]
}
