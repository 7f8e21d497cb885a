import { isIP } from 'node:net'
import { z } from 'zod'

export function integer({ min, max }: { readonly min: number; readonly max: number }) {
  return z
    .string()
    .refine((text) => /^\d{1,15}$/.test(text) && Number(text) >= min && Number(text) <= max, {
      error: (issue) => `expected a whole number from ${min} to ${max}, got ${quote(issue.input)}`,
    })
    .transform(Number)
}

export function positiveNumber({ max }: { readonly max: number }) {
  return z
    .string()
    .refine(
      (text) => /^\d{1,15}(\.\d{1,9})?$/.test(text) && Number(text) > 0 && Number(text) <= max,
      {
        error: (issue) => `expected a number above 0 and at most ${max}, got ${quote(issue.input)}`,
      },
    )
    .transform(Number)
}

/** A TCP port. 0 means any free port. */
export const port = integer({ min: 0, max: 65_535 })

export const flag = z
  .enum(['true', 'false'], {
    error: (issue) => `expected true or false, got ${quote(issue.input)}`,
  })
  .transform((text) => text === 'true')

export function oneOf<const Words extends readonly [string, ...string[]]>(words: Words) {
  return z.enum(words, {
    error: (issue) => `expected one of ${words.join(', ')}, got ${quote(issue.input)}`,
  })
}

/** A fault does not repeat the value, because URLs may contain passwords. */
export function url(schemes: readonly string[]) {
  return z
    .string()
    .refine((text) => URL.canParse(text) && schemes.includes(new URL(text).protocol.slice(0, -1)), {
      error: `expected a URL that begins with ${schemes.map((scheme) => `${scheme}:`).join(' or ')}`,
    })
}

/** A fault does not repeat the value, which may be a secret. */
export function form(pattern: RegExp, expected: string) {
  return z.string().regex(pattern, { error: `expected ${expected}` })
}

const CONFIDENTIAL = new WeakSet<object>()

/**
 * Marks a field whose value may contain a secret. `NAME_FILE` may then name a file with the value
 * (read-settings.ts). A wrapper of the field, such as `.optional()`, keeps the mark.
 */
export function confidential<Field extends z.ZodType>(field: Field): Field {
  CONFIDENTIAL.add(field)
  return field
}

export function isConfidential(field: z.core.$ZodType): boolean {
  const { innerType, in: input, out } = field._zod.def as WrappedFields
  return (
    CONFIDENTIAL.has(field) ||
    [innerType, input, out].some((inner) => inner !== undefined && isConfidential(inner))
  )
}

/** zod's optional, default and piped types have the wrapped field in one of these members. */
type WrappedFields = z.core.$ZodTypeDef &
  Readonly<Partial<Record<'innerType' | 'in' | 'out', z.core.$ZodType>>>

/** A credential: printable ASCII without blanks, because it is sent in a header. */
export const secret = confidential(
  form(/^[\x21-\x7e]{1,4096}$/, 'printable ASCII without blanks, at most 4096 characters'),
)

/**
 * A private key of secp256k1, 32 bytes in hex, with or without 0x. The result has 0x and is in
 * lower case. A fault does not repeat the value.
 */
export const privateKey = confidential(
  z
    .string()
    .refine(isPrivateKey, { error: 'expected 32 bytes in hex that are a private key of secp256k1' })
    .transform((hex) => `0x${hex.replace(/^0x/, '').toLowerCase()}`),
)

/** A list of texts, separated by commas. Blanks around a text, and empty texts, are removed. */
export function listField({
  itemsMax,
  lengthMax,
}: {
  readonly itemsMax: number
  readonly lengthMax: number
}) {
  return z
    .string()
    .transform((text): readonly string[] =>
      text
        .split(',')
        .map((item) => item.trim())
        .filter((item) => item !== ''),
    )
    .refine(
      (items) => items.length <= itemsMax && items.every((item) => item.length <= lengthMax),
      {
        error: `expected at most ${itemsMax} texts with commas between them, each of at most ${lengthMax} characters`,
      },
    )
}

/**
 * A list of web origins, separated by commas, or `*`. Each origin must have the form that browsers
 * send: scheme, host, and the port if it is not the scheme's default.
 */
export function origins({ itemsMax }: { readonly itemsMax: number }) {
  return listField({ itemsMax, lengthMax: ORIGIN_LENGTH_MAX }).refine(
    (items) => items.every(isOrigin),
    {
      error:
        'expected origins such as https://app.example, without a path, with commas between them, or *',
    },
  )
}

const ORIGIN_LENGTH_MAX = 300

/** A list of IP addresses and CIDRs, separated by commas. */
export function addressRanges({ itemsMax }: { readonly itemsMax: number }) {
  return listField({ itemsMax, lengthMax: RANGE_LENGTH_MAX }).refine(
    (items) => items.every(isAddressRange),
    { error: 'expected IP addresses and CIDRs such as 10.0.0.0/8, with commas between them' },
  )
}

const RANGE_LENGTH_MAX = 50

function isAddressRange(text: string): boolean {
  const [address = '', prefix, ...rest] = text.split('/')
  const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1
  if (bits < 0 || rest.length > 0) return false
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= bits)
}

/** Returns the path in `unix:/path` or `unix:///path`. Null for any other text. */
export function parseSocketUrl(text: string): string | null {
  const [, path] = /^unix:(?:\/\/(?=\/))?(\/[^,\p{Cc}]{1,106})$/u.exec(text) ?? []
  return path !== undefined && Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX ? path : null
}

const SOCKET_PATH_BYTES_MAX = 107

/**
 * A list of sockets, `unix:/path`, separated by commas, without duplicates. The result has their
 * paths.
 */
export function sockets({ itemsMax }: { readonly itemsMax: number }) {
  return listField({ itemsMax, lengthMax: 'unix://'.length + SOCKET_PATH_BYTES_MAX })
    .transform((items) => items.map(parseSocketUrl))
    .refine(
      (paths) => paths.length > 0 && !paths.includes(null) && new Set(paths).size === paths.length,
      {
        error:
          'expected unix: and the absolute path of a socket, or several different ones with commas between them',
      },
    )
    .transform((paths) => paths.filter((path) => path !== null))
}

/** Refuses `https://App.example/`: browsers never send an origin in this form. */
function isOrigin(item: string): boolean {
  return (
    item === '*' || (/^https?:/.test(item) && URL.canParse(item) && new URL(item).origin === item)
  )
}

export const textField = z.string()

/** Order of secp256k1 (SEC 2, 2.4.1). A private key is at least 1 and below this number. */
const CURVE_ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

function isPrivateKey(hex: string): boolean {
  if (!/^(0x)?[0-9a-fA-F]{64}$/.test(hex)) return false
  const key = BigInt(`0x${hex.replace(/^0x/, '')}`)
  return key > 0n && key < CURVE_ORDER
}

const QUOTED_MAX = 80

function quote(value: unknown): string {
  const shown = String(value)
  return JSON.stringify(shown.length > QUOTED_MAX ? `${shown.slice(0, QUOTED_MAX)}…` : shown)
}
