/**
 * A value that is refused with a 422. One of the faults is at `[place, field, ...at]` and has this
 * type.
 */
export type Rejection = {
  readonly value: unknown
  readonly type: string
  readonly at: readonly (string | number)[]
  /** Whether the OpenAPI document allows the value, because no JSON Schema can refuse it. */
  readonly isBeyondSchema?: true
}

/** One field of a request, as in the interface. `undefined` leaves it out. */
export type FieldRow = {
  readonly field: string
  readonly accepts: readonly unknown[]
  readonly rejects: readonly Rejection[]
  /** The default value, where the interface states one. */
  readonly default?: unknown
  /** Other members that the field needs. */
  readonly beside?: Readonly<Record<string, unknown>>
}

/** Values that are refused as a whole. */
export function refuse(type: string, ...values: readonly unknown[]): readonly Rejection[] {
  return refuseAt([], type, ...values)
}

/** Values whose part at `at` is refused. */
export function refuseAt(
  at: Rejection['at'],
  type: string,
  ...values: readonly unknown[]
): readonly Rejection[] {
  return values.map((value) => ({ value, type, at }))
}

/** Rejections that the OpenAPI document cannot express. */
export function beyondSchema(rejections: readonly Rejection[]): readonly Rejection[] {
  return rejections.map((rejection) => ({ ...rejection, isBeyondSchema: true }))
}

/** Values that are not text. */
export const NO_TEXT = refuse('string_type', 5, true, [], {})

/** Values that are not numbers. */
export const NO_NUMBER = refuse('float_type', '1', true, [], {})

/** Values that are not integers. */
export const NO_INTEGER = [
  ...refuse('int_from_float', 1.5),
  ...refuse('int_type', '1', true, [], {}),
]

/** Values that are not booleans. */
export const NO_BOOLEAN = refuse('bool_type', 'true', 1, [], {})

/** An optional text. */
export function textRow(field: string): FieldRow {
  return { field, accepts: [undefined, null, 'text', ''], rejects: NO_TEXT }
}

/** A required text that must not be empty. */
export function requiredTextRow(field: string, text: string): FieldRow {
  return {
    field,
    accepts: [text],
    rejects: [
      ...refuse('missing', undefined),
      ...refuse('string_type', null),
      ...refuse('string_too_short', ''),
      ...NO_TEXT,
    ],
  }
}

/** An optional number from `min` to `max`, both included. */
export function numberRow(
  field: string,
  { min, max }: { readonly min: number; readonly max: number },
): FieldRow {
  return {
    field,
    accepts: [undefined, null, min, max, (min + max) / 2],
    rejects: [
      ...refuse('greater_than_equal', min - 0.001),
      ...refuse('less_than_equal', max + 0.001),
      ...NO_NUMBER,
    ],
  }
}

/**
 * An optional integer from `min` to `max`, both included; without `max`, up to the largest integer
 * that a double holds exactly.
 */
export function integerRow(
  field: string,
  { min, max }: { readonly min: number; readonly max?: number },
): FieldRow {
  const beyond = max === undefined ? [] : refuse('less_than_equal', max + 1)
  return {
    field,
    accepts: [undefined, null, min, max ?? Number.MAX_SAFE_INTEGER],
    rejects: [...refuse('greater_than_equal', min - 1), ...beyond, ...NO_INTEGER],
  }
}

/** An optional word, one of a few. */
export function wordRow(field: string, words: readonly string[]): FieldRow {
  return {
    field,
    accepts: [undefined, null, ...words],
    rejects: refuse('literal_error', 'other', '', words[0]?.toUpperCase(), 1, true, [], {}),
  }
}
