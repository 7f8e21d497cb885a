/**
 * A value that is refused with a 422, one fault of which is at `[place, field, ...at]` and of this
 * type.
 */
export type Rejection = {
  readonly value: unknown
  readonly type: string
  readonly at: readonly (string | number)[]
  /** Whether the OpenAPI document allows it, because no JSON Schema can refuse it. */
  readonly isBeyondSchema?: true
}

/** One field of a request, as the interface has it. `undefined` leaves it out. */
export type FieldRow = {
  readonly field: string
  readonly accepts: readonly unknown[]
  readonly rejects: readonly Rejection[]
  /** What it is when it is left out, where the interface says so. */
  readonly default?: unknown
  /** Other members that it needs. */
  readonly beside?: Readonly<Record<string, unknown>>
}

/** Values that are refused as a whole. */
export function refuse(type: string, ...values: readonly unknown[]): readonly Rejection[] {
  return refuseAt([], type, ...values)
}

/** Values of which the part at `at` is refused. */
export function refuseAt(
  at: Rejection['at'],
  type: string,
  ...values: readonly unknown[]
): readonly Rejection[] {
  return values.map((value) => ({ value, type, at }))
}

/** Rejections that the document cannot say. */
export function beyondSchema(rejections: readonly Rejection[]): readonly Rejection[] {
  return rejections.map((rejection) => ({ ...rejection, isBeyondSchema: true }))
}

/** What is no text. */
export const NO_TEXT = refuse('string_type', 5, true, [], {})

/** What is no number. */
export const NO_NUMBER = refuse('float_type', '1', true, [], {})

/** What is no integer. */
export const NO_INTEGER = [
  ...refuse('int_from_float', 1.5),
  ...refuse('int_type', '1', true, [], {}),
]

/** What is no boolean. */
export const NO_BOOLEAN = refuse('bool_type', 'true', 1, [], {})

/** A text that may be left out. */
export function textRow(field: string): FieldRow {
  return { field, accepts: [undefined, null, 'text', ''], rejects: NO_TEXT }
}

/** A text that has to be there, and has characters. */
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

/** A number that may be left out, from `min` to `max`, both allowed. */
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
 * An integer that may be left out, from `min` to `max`, both allowed; without `max` up to what a
 * double holds exactly.
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

/** One of a few words, that may be left out. */
export function wordRow(field: string, words: readonly string[]): FieldRow {
  return {
    field,
    accepts: [undefined, null, ...words],
    rejects: refuse('literal_error', 'other', '', words[0]?.toUpperCase(), 1, true, [], {}),
  }
}
