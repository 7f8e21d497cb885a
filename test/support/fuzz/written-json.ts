/**
 * JSON text that a JavaScript value cannot express: repeated members, malformed numbers, text that
 * is not valid JSON. `text` is written as it is.
 */
export type Written =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'array'; readonly items: readonly Written[] }
  | { readonly kind: 'object'; readonly members: readonly WrittenMember[] }

export type WrittenMember = readonly [name: string, value: Written]

/** The text of such JSON. */
export function writeJson(written: Written): string {
  switch (written.kind) {
    case 'text':
      return written.text
    case 'array':
      return `[${written.items.map(writeJson).join(',')}]`
    case 'object':
      return `{${written.members.map(([name, value]) => `${JSON.stringify(name)}:${writeJson(value)}`).join(',')}}`
  }
}

/** A value in its usual JSON text. */
export function writtenOf(value: unknown): Written {
  return { kind: 'text', text: JSON.stringify(value) }
}
