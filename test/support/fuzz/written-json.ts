/**
 * JSON as somebody wrote it, which a value cannot say: members twice, numbers that are none, text
 * that is no JSON. `text` is written as it stands.
 */
export type Written =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'array'; readonly items: readonly Written[] }
  | { readonly kind: 'object'; readonly members: readonly WrittenMember[] }

export type WrittenMember = readonly [name: string, value: Written]

/** Text of what was written. */
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

/** A value as anybody writes it. */
export function writtenOf(value: unknown): Written {
  return { kind: 'text', text: JSON.stringify(value) }
}
