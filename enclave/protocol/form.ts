import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'
import {
  beyondBound,
  FAULTS_MAX,
  type Fault,
  MISSING,
  noneOf,
  type RequestFault,
  unlikePattern,
  WRONG_TYPE,
} from './request-faults.ts'

/**
 * The form of a JSON value, as data. `faultsOf` checks values against it, and the gateway's
 * documentation is generated from it. Bounds are inclusive.
 */
export type Form =
  /** The value may be left out, or null. */
  | { readonly kind: 'optional'; readonly form: Form }
  | { readonly kind: 'nullable'; readonly form: Form }
  | { readonly kind: 'boolean' }
  | ({ readonly kind: 'number' } & Bounds)
  /** 1.0 is an integer. */
  | ({ readonly kind: 'integer' } & Bounds)
  /** Limits of the text's length, in UTF-16 units. */
  | ({ readonly kind: 'text'; readonly pattern?: RegExp; readonly wrongType?: Fault } & Bounds)
  | { readonly kind: 'literal'; readonly texts: readonly string[] }
  | ({ readonly kind: 'list'; readonly items: Form } & Bounds)
  /** An object with any member names, whose values are all numbers. */
  | { readonly kind: 'numbers' }
  /** A list has the form `list`, an object the form `object`, any other value the form `text`. */
  | { readonly kind: 'either'; readonly text: Form; readonly list?: Form; readonly object?: Form }
  | ObjectForm

type Bounds = { readonly min?: number; readonly max?: number }

/** An object with these members. Unknown members are allowed. */
export type ObjectForm = {
  readonly kind: 'object'
  readonly members: Readonly<Record<string, Form>>
  /** Forms that the object must also match, chosen by its member `type`. */
  readonly byType?: Readonly<Record<string, Form>>
  /** Finds faults that involve several members. Called only if each member has the right type. */
  readonly between?: (value: JsonObject) => readonly Found[]
}

/**
 * A fault at `loc`, relative to the checked value. `isBound`: the type is right, but a limit or
 * pattern is not met.
 */
type Found = RequestFault & { readonly isBound: boolean }

export const text: Form = { kind: 'text' }
export const name: Form = { kind: 'text', min: 1 }
export const boolean: Form = { kind: 'boolean' }

export function optional(form: Form): Form {
  return { kind: 'optional', form }
}

export function literal(...texts: readonly string[]): Form {
  return { kind: 'literal', texts }
}

export function listOf(items: Form, bounds: Bounds = {}): Form {
  return { kind: 'list', items, ...bounds }
}

export function object(
  members: ObjectForm['members'],
  more: Pick<ObjectForm, 'byType' | 'between'> = {},
): ObjectForm {
  return { kind: 'object', members, ...more }
}

export function isUnset(value: unknown): value is null | undefined {
  return value === undefined || value === null
}

/** Returns the faults of a value (attacker-controlled), in the order of the form. */
export function faultsOf(form: Form, value: Json | undefined): readonly Found[] {
  if (form.kind === 'optional') return isUnset(value) ? NONE : faultsOf(form.form, value)
  if (value === undefined) return [found(MISSING)]
  switch (form.kind) {
    case 'nullable':
      return value === null ? NONE : faultsOf(form.form, value)
    case 'boolean':
      return typeof value === 'boolean' ? NONE : [found(WRONG_TYPE.boolean)]
    case 'number':
      return typeof value === 'number'
        ? boundFaults('number', value, form)
        : [found(WRONG_TYPE.number)]
    case 'integer':
      return integerFaults(value, form)
    case 'text':
      return textFaults(value, form)
    case 'literal':
      return typeof value === 'string' && form.texts.includes(value)
        ? NONE
        : [found(noneOf(form.texts))]
    case 'list':
      return listFaults(value, form)
    case 'numbers':
      return numbersFaults(value)
    case 'either': {
      const meant = isJsonArray(value) ? form.list : isJsonObject(value) ? form.object : form.text
      return hardened(faultsOf(meant ?? form.text, value))
    }
    case 'object':
      return objectFaults(value, form)
  }
}

const NONE: readonly Found[] = []

/** Returns a fault at `loc`. An object with such a fault is not passed to `between`. */
export function found(fault: Fault, ...loc: readonly (string | number)[]): Found {
  return { loc, ...fault, isBound: false }
}

function hardened(all: readonly Found[]): readonly Found[] {
  return all.map((one) => ({ ...one, isBound: false }))
}

function below(step: string | number, all: readonly Found[]): readonly Found[] {
  return all.map((one) => ({ ...one, loc: [step, ...one.loc] }))
}

function boundFaults(
  origin: 'string' | 'array' | 'number',
  size: number,
  { min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY }: Bounds,
): readonly Found[] {
  if (size >= min && size <= max) return NONE
  const fault = size < min ? beyondBound('least', origin, min) : beyondBound('most', origin, max)
  return [{ ...found(fault), isBound: true }]
}

function integerFaults(value: Json, bounds: Bounds): readonly Found[] {
  if (typeof value !== 'number')
    return [found({ type: 'int_type', msg: 'Input should be a valid integer' })]
  if (Number.isSafeInteger(value)) return hardened(boundFaults('number', value, bounds))
  const msg = 'Input should be a valid integer, without a fraction and within ±(2^53-1)'
  return [found({ type: 'int_from_float', msg })]
}

function textFaults(
  value: Json,
  { pattern, wrongType = WRONG_TYPE.string, ...bounds }: Form & { readonly kind: 'text' },
): readonly Found[] {
  if (typeof value !== 'string') return [found(wrongType)]
  return pattern === undefined || pattern.test(value)
    ? boundFaults('string', value.length, bounds)
    : [{ ...found(unlikePattern(String(pattern))), isBound: true }]
}

/** Stops after some faults, because a list of 10 MiB could have millions of faults. */
function listFaults(
  value: Json,
  { items, ...bounds }: Form & { readonly kind: 'list' },
): readonly Found[] {
  if (!isJsonArray(value)) return [found(WRONG_TYPE.array)]
  const all = [...boundFaults('array', value.length, bounds)]
  if (all.length > 0) return hardened(all)
  for (let index = 0; index < value.length && all.length < FAULTS_MAX; index++)
    all.push(...below(index, faultsOf(items, value[index])))
  return hardened(all)
}

function numbersFaults(value: Json): readonly Found[] {
  if (!isJsonObject(value)) return [found(WRONG_TYPE.object)]
  const name = Object.keys(value).find((one) => typeof value[one] !== 'number')
  return name === undefined ? NONE : [found(WRONG_TYPE.number, name)]
}

function objectFaults(value: Json, { members, byType, between }: ObjectForm): readonly Found[] {
  if (!isJsonObject(value)) return [found(WRONG_TYPE.object)]
  const all = Object.entries(members).flatMap(([name, form]) =>
    below(name, faultsOf(form, memberOf(value, name))),
  )
  if (!all.every(({ isBound }) => isBound)) return all
  const type = String(value.type)
  const form = byType !== undefined && Object.hasOwn(byType, type) ? byType[type] : undefined
  return [...all, ...(form === undefined ? [] : faultsOf(form, value)), ...(between?.(value) ?? [])]
}
