import { Decoder } from 'cbor-x'

/*
 * Which one check of the product is skipped now, and what was reached since it was last asked. The
 * sources that hook.ts changes ask it; nothing in the product knows of it.
 */

/** A check, a refusal by code, or one throw statement of the sources, as `kind name`. */
export type MutantKey = string

const state: { active: MutantKey | null; reached: Set<MutantKey> } = {
  active: null,
  reached: new Set(),
}

/** Skips this one from now on; null skips none. */
export function activate(key: MutantKey | null): void {
  state.active = key
}

/** What would have been skipped, had it been asked for, since this was called before. */
export function takeReached(): ReadonlySet<MutantKey> {
  const { reached } = state
  state.reached = new Set()
  return reached
}

function isSkipped(...keys: readonly MutantKey[]): boolean {
  for (const key of keys) state.reached.add(key)
  return state.active !== null && keys.includes(state.active)
}

function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'none'
  if ('code' in error && typeof error.code === 'string') return error.code
  // A fault in the encoding of a certificate gets its code from whoever reads the certificate.
  return error.name === 'DerError' ? 'certificate_der' : error.name
}

type Made = { readonly name: string; readonly outcome: string; readonly detail: string }

const LENIENT = new Decoder({ mapsAsObjects: false, useRecords: false })

function decodeLeniently(bytes: Uint8Array, offset: number) {
  return { value: LENIENT.decode(bytes.subarray(offset)) as unknown, end: bytes.length }
}

/** What the changed sources call, under names that no source has. */
const CALLED = {
  /** In place of `throw error`: whether to go on instead. */
  skips$: (error: unknown, site: string): boolean =>
    isSkipped(`throw ${site}`, ...(isOfDocument(error) ? [`code ${codeOf(error)}`] : [])),
  /** In place of `throw error`, where what follows needs a value. */
  skipTo$: <Value>(error: unknown, giveValue: () => Value): Value => {
    if (isSkipped(`code ${codeOf(error)}`)) return giveValue()
    throw error
  },
  /** A verifier that does not read CBOR strictly takes whatever a library makes of it. */
  decode$: (bytes: Uint8Array, offset: number, decodeStrictly: () => unknown): unknown =>
    /^code (cbor_|protected_header_duplicate_key|payload_duplicate_key|pcr_)/.test(
      state.active ?? '',
    )
      ? decodeLeniently(bytes, offset)
      : decodeStrictly(),
  lenient$: decodeLeniently,
  /** Of what a check found: that, or that it passed. */
  found$: <Check extends Made>(made: Check): Check => {
    if (made.outcome === 'passed') return made
    const key = made.outcome === 'failed' ? `check ${made.name}` : `open ${made.name}`
    return isSkipped(key) ? { ...made, outcome: 'passed', detail: 'skipped' } : made
  },
  /** Whether what is asked for by this name is skipped. */
  isSkipped$: (name: string): boolean => isSkipped(name),
}

function isOfDocument(error: unknown): boolean {
  return error instanceof Error && /^(AttestationError|DerError)$/.test(error.name)
}

Object.assign(globalThis, CALLED)
