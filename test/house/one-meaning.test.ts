import { parseSync } from 'oxc-parser'
import { expect, it } from 'vitest'
import { listTracked, readTracked } from './tracked-files.ts'

const sources = listTracked('*.ts', '*.tsx')
  .filter((file) => /^(?:attestation|audit|client|enclave|src|packages)\//.test(file))
  // Kysely runs the function `up` of each.
  .filter((file) => !/^src\/storage\/migrations\/[^/]+$/.test(file))

/** The names that a source defines and exports; names that it passes on are not among them. */
function listDefined(file: string, source: string): readonly string[] {
  const { module } = parseSync(file, source)
  const imported = new Set(
    module.staticImports.flatMap(({ entries }) => entries.map(({ localName }) => localName.value)),
  )
  const names = module.staticExports.flatMap(({ entries }) =>
    entries.flatMap(({ moduleRequest, exportName, localName }) => {
      const isPassedOn = moduleRequest !== null || imported.has(localName.name ?? '')
      return isPassedOn || exportName.name === null ? [] : [exportName.name]
    }),
  )
  // A type and a value of one name in one file are one concept.
  return [...new Set(names)]
}

it('no exported name has two meanings', () => {
  const filesOf = new Map<string, readonly string[]>()
  for (const file of sources)
    for (const name of listDefined(file, readTracked(file)))
      filesOf.set(name, [...(filesOf.get(name) ?? []), file])
  const ambiguous = [...filesOf].filter(([, files]) => files.length > 1)
  expect(filesOf.size).toBeGreaterThan(3_000)
  expect(ambiguous.map(([name, files]) => `${name}: ${files.join(', ')}`)).toEqual([])
})
