/** Cases by what they are about (a code, a rule or a check), then by name. */
export type CaseTable<Group extends string | number, Case> = {
  readonly [group in Group]?: Readonly<Record<string, Case>>
}

type Named<Key extends string, Group extends string | number> = {
  readonly [key in Key]: Group
} & { readonly name: string }

/** The bytes with their last bit flipped, or the last bit of the byte at this place. */
export function nearly(bytes: Uint8Array, at = bytes.length - 1): Uint8Array {
  return Uint8Array.from(bytes, (byte, index) => (index === at ? byte ^ 1 : byte))
}

/** The cases of a table, each with its name, and with its group under `key`. */
export function casesOf<Key extends string, Group extends string | number, Case extends object>(
  key: Key,
  table: CaseTable<Group, Case>,
): readonly (Case & Named<Key, Group>)[] {
  return Object.entries<Readonly<Record<string, Case>> | undefined>(table).flatMap(
    ([group, cases = {}]) => {
      const about = { [key]: /^\d+$/.test(group) ? Number(group) : group }
      return Object.entries(cases).map(
        ([name, one]) => ({ ...one, ...about, name }) as Case & Named<Key, Group>,
      )
    },
  )
}

/** Cases by code, then by name, as rows of a test: the name, the code and the case. */
export function rowsByCode<Case>(
  table: Readonly<Record<string, Readonly<Record<string, Case>>>>,
): readonly (readonly [name: string, code: string, Case])[] {
  return Object.entries(table).flatMap(([code, cases]) =>
    Object.entries(cases).map(([name, one]) => [name, code, one] as const),
  )
}
