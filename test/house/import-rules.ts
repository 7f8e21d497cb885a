import { dirname, join, normalize } from 'node:path/posix'
import { parseSync } from 'oxc-parser'

/** One import of one file: the specifier as written, and whether only types cross. */
export type Import = { readonly specifier: string; readonly typeOnly: boolean }

/** A broken rule, in words a reader can act on. */
export type Violation = { readonly file: string; readonly specifier: string; readonly rule: string }

/** What the rooms may import: attestation is pure and runs in browsers, the enclave is small (their READMEs). */
const ATTESTATION_PACKAGES = ['@noble/curves', '@noble/hashes', 'cbor-x']
const ENCLAVE_PACKAGES = [...ATTESTATION_PACKAGES, 'koffi', 'tiny-secp256k1']

/**
 * Gives the imports of a TypeScript source: static imports, re-exports and `import()` with a literal. An
 * `import()` whose argument is no literal is given as the specifier `<computed>`, which no rule allows.
 */
export function listImports(file: string, source: string): readonly Import[] {
  const { module, errors } = parseSync(file, source)
  const fault = errors[0]
  if (fault) throw new Error(`${file}: ${fault.message}`)
  const statics = module.staticImports.map((entry) => ({
    specifier: entry.moduleRequest.value,
    typeOnly: entry.entries.length > 0 && entry.entries.every((name) => name.isType),
  }))
  const reexports = module.staticExports.flatMap((entry) =>
    entry.entries.flatMap(({ moduleRequest, isType }) =>
      moduleRequest ? [{ specifier: moduleRequest.value, typeOnly: isType }] : [],
    ),
  )
  const dynamics = module.dynamicImports.map(({ moduleRequest }) => {
    const literal = source.slice(moduleRequest.start, moduleRequest.end).match(/^(['"])(.*)\1$/)
    return { specifier: literal?.[2] ?? '<computed>', typeOnly: false }
  })
  return [...statics, ...reexports, ...dynamics]
}

/** Gives every rule that the imports of one file (path from the repository's root) break. */
export function checkImports(file: string, imports: readonly Import[]): readonly Violation[] {
  return imports.flatMap((entry) => {
    const target = entry.specifier.startsWith('.') ? normalize(join(dirname(file), entry.specifier)) : null
    const rule = target === null ? brokenPackageRule(file, entry) : brokenRoomRule(file, target, entry)
    return rule === null ? [] : [{ file, specifier: entry.specifier, rule }]
  })
}

function brokenPackageRule(file: string, { specifier }: Import): string | null {
  const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
  if (specifier === '<computed>')
    return mayComputeImports(file) ? null : 'imports are literal, so that they can be checked'
  if (inside(file, 'attestation') && !ATTESTATION_PACKAGES.includes(name))
    return `attestation/ is pure: it imports only ${ATTESTATION_PACKAGES.join(', ')}`
  if (inside(file, 'enclave/image')) return null
  if (inside(file, 'enclave') && !specifier.startsWith('node:') && !ENCLAVE_PACKAGES.includes(name))
    return `enclave/ is small: it imports only node: and ${ENCLAVE_PACKAGES.join(', ')}`
  if (inside(file, 'migrations') && name !== 'kysely') return 'migrations/ imports only kysely'
  if (
    inside(file, 'src') &&
    ['kysely', 'pg', '@electric-sql/pglite'].includes(name) &&
    !inside(file, 'src/stores')
  )
    return 'only src/stores touches the database'
  return null
}

function brokenRoomRule(file: string, target: string, { typeOnly }: Import): string | null {
  const allowed = Object.entries(ROOMS).find(([room]) => inside(file, room))?.[1]
  if (allowed && !allowed.some((room) => inside(target, room))) return `may import only ${allowed.join(', ')}`
  if (inside(file, 'src') && target === 'src/main.ts') return 'nobody imports main'
  if (inside(file, 'enclave') && target === 'enclave/main.ts') return 'nobody imports main'
  if (inside(file, 'src/routes') && inside(target, 'src/stores') && !typeOnly)
    return 'routes call services, not stores'
  if (inside(file, 'src/services') && inside(target, 'src/routes')) return 'services know nothing of routes'
  if (inside(file, 'src/stores') && ['src/routes', 'src/services'].some((room) => inside(target, room)))
    return 'stores know nothing of services and routes'
  return null
}

/** First match decides: more specific rooms stand before the rooms that hold them. */
const ROOMS: Readonly<Record<string, readonly string[]>> = {
  attestation: ['attestation'],
  'enclave/protocol': ['enclave/protocol', 'attestation'],
  enclave: ['enclave', 'attestation'],
  migrations: ['migrations'],
  contracts: ['contracts'],
  src: ['src', 'attestation', 'enclave/protocol', 'contracts'],
}

/** Kysely's migrator loads the migrations of a folder by their file names. */
function mayComputeImports(file: string): boolean {
  return inside(file, 'test') || file === 'src/storage/migrate.ts'
}

function inside(file: string, room: string): boolean {
  return file === room || file.startsWith(`${room}/`)
}
