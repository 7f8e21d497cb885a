import { readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path/posix'
import { parseSync } from 'oxc-parser'

/** One import of one file: the specifier as written, and whether only types cross. */
export type Import = { readonly specifier: string; readonly typeOnly: boolean }

/** A broken rule, in words a reader can act on. */
export type Violation = { readonly file: string; readonly specifier: string; readonly rule: string }

/**
 * What the rooms may import: attestation is pure and runs in browsers, the enclave is small (their
 * READMEs).
 */
const ATTESTATION_PACKAGES = ['@noble/curves', '@noble/hashes']
const PAGE_PACKAGES = ['preact', 'uplot']
const PAGE_ROOMS = ['src/web', 'client', 'attestation']
/** Files of other rooms that run anywhere. */
const PAGE_FILES = ['src/runtime/csv.ts']
const AUDIT_PACKAGES = ['@noble/hashes', 'zod']
const ENCLAVE_PACKAGES = [...ATTESTATION_PACKAGES, 'koffi', 'tiny-secp256k1']

/**
 * The rooms, from the ground up: a room imports those before it, never one after it. A folder of
 * `src/` is a room, and `src/` itself the last one of them; a folder in a room belongs to it.
 */
export const ROOMS: readonly string[] = [
  'contracts',
  'migrations',
  'attestation',
  'enclave/protocol',
  'enclave',
  'enclave/image',
  'client',
  'audit',
  'src/runtime',
  'src/observability',
  'src/storage',
  'src/bus',
  'src/api',
  'src/upstream',
  'src/accounts',
  'src/enclaves',
  'src/chain',
  'src/providers',
  'src/nodes',
  'src/chat',
  'src/images',
  'src/embeddings',
  'src/search',
  'src/verified',
  'src/web',
  'src/agent',
  'src/local',
  'src/cli',
  'src',
  'packages',
]

/**
 * Rooms with rooms in them, from the ground up, as above: what stands beside these is below all of
 * them.
 */
const INNER_ROOMS: Readonly<Record<string, readonly string[]>> = {
  'src/nodes': ['protocol', 'registry', 'runs', 'sharing', 'hub'],
  'src/verified': ['records', 'logs', 'commits', 'calls'],
}

/**
 * Gives the imports of a TypeScript source: static imports, re-exports and `import()` with a
 * literal. An `import()` with a computed argument is given as the specifier `<computed>`, which no
 * rule allows.
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
    const [target = null] = targetOf(file, entry)
    const rule =
      target === null
        ? brokenPackageRule(file, entry)
        : brokenRoomRule(file, target, entry.typeOnly)
    return rule === null ? [] : [{ file, specifier: entry.specifier, rule }]
  })
}

/**
 * The file that an import of `file` names, from the repository's root; none when it names a
 * package.
 */
export function targetOf(file: string, { specifier }: Import): readonly string[] {
  if (specifier.startsWith('#')) return [specifier.slice(1)]
  return specifier.startsWith('.') ? [normalize(join(dirname(file), specifier))] : []
}

/**
 * The files of the project that a program loads, itself included, sorted. Paths are from the
 * repository's root.
 */
export function listLoadedFiles(root: string, main: string): readonly string[] {
  const found = new Set<string>()
  const visit = (file: string) => {
    if (found.has(file)) return
    found.add(file)
    for (const entry of listImports(file, readFileSync(join(root, file), 'utf8')))
      if (!entry.typeOnly) targetOf(file, entry).forEach(visit)
  }
  visit(main)
  return [...found].toSorted()
}

/** The files of one circle of imports, sorted; empty when there is no circle. */
export function findCircle(imports: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const left = new Map(imports)
  // What imports nothing that is left is in no circle.
  for (let before = -1; before !== left.size; ) {
    before = left.size
    for (const [file, targets] of left)
      if (!targets.some((target) => left.has(target))) left.delete(file)
  }
  // Nor is what nothing that is left imports.
  for (let before = -1; before !== left.size; ) {
    before = left.size
    const wanted = new Set([...left.values()].flat())
    for (const file of left.keys()) if (!wanted.has(file)) left.delete(file)
  }
  return [...left.keys()].sort()
}

function brokenPackageRule(file: string, { specifier }: Import): string | null {
  const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
  if (specifier === '<computed>')
    return mayComputeImports(file) ? null : 'imports are literal, so that they can be checked'
  if (inside(file, 'attestation') && !ATTESTATION_PACKAGES.includes(name))
    return `attestation/ is pure: it imports only ${ATTESTATION_PACKAGES.join(', ')}`
  if (inside(file, EXAMPLES)) return null
  if (inside(file, 'client') && name !== 'hpke')
    return 'client/ runs in browsers: it imports attestation/ and hpke alone'
  if (inside(file, 'client')) return null
  if (inside(file, 'audit') && !specifier.startsWith('node:') && !AUDIT_PACKAGES.includes(name))
    return `audit/ is for auditors: it imports only node: and ${AUDIT_PACKAGES.join(', ')}`
  if (isOfPage(file)) return brokenPageRule(name)
  if (inside(file, 'enclave/image')) return null
  if (inside(file, 'enclave') && !specifier.startsWith('node:') && !ENCLAVE_PACKAGES.includes(name))
    return `enclave/ is small: it imports only node: and ${ENCLAVE_PACKAGES.join(', ')}`
  if (inside(file, MIGRATIONS) && name !== 'kysely') return 'migrations import only kysely'
  if (DATABASE_PACKAGES.includes(name) && inside(file, 'src') && !mayQuery(file))
    return 'only storage/ and the stores of the rooms (…-store.ts) touch the database'
  return null
}

/** What runs in a browser is in a folder of the room, what serves it in the room itself. */
function isOfPage(file: string): boolean {
  return /^src\/web\/[^/]+\//.test(file)
}

function brokenPageRule(name: string): string | null {
  return PAGE_PACKAGES.includes(name)
    ? null
    : `pages run in browsers: they import only ${PAGE_PACKAGES.join(', ')}`
}

function brokenRoomRule(file: string, target: string, typeOnly: boolean): string | null {
  const isForPages = PAGE_ROOMS.includes(roomOf(target) ?? '') || PAGE_FILES.includes(target)
  if (isOfPage(file) && !typeOnly && !isForPages)
    return `pages run in browsers: of other rooms than ${PAGE_ROOMS.join(', ')} they import types alone`
  if (isOfPage(file) && !typeOnly && inside(target, 'src/web') && !isOfPage(target))
    return 'pages import nothing of what serves them'
  if (inside(file, 'src/web') && !isOfPage(file) && isOfPage(target))
    return 'what serves the pages imports none of them'
  if (inside(file, MIGRATIONS))
    return inside(target, MIGRATIONS) ? null : 'migrations import nothing of ours'
  if (target.endsWith('/main.ts')) return 'nobody imports main'
  if (inside(target, EXAMPLES) && !inside(file, EXAMPLES)) return 'nobody imports examples'
  const from = roomOf(file)
  const to = roomOf(target)
  if (to === null) return 'sources import sources alone'
  if (from === null) return null
  if (from === to) return brokenInnerRule(from, file, target)
  if (from === 'client' && to !== 'attestation')
    return 'client/ runs in browsers: it imports attestation/ alone'
  if (from === 'audit' && !['attestation', 'client'].includes(to))
    return 'audit/ is for auditors: it imports attestation/ and client/ alone'
  if (inside(from, 'src') && to === 'enclave')
    return 'of the enclave, src/ knows its protocol alone'
  if (ROOMS.indexOf(to) > ROOMS.indexOf(from)) return `${from} stands below ${to}`
  return null
}

function brokenInnerRule(room: string, file: string, target: string): string | null {
  const floorOf = (one: string) => {
    const inner = INNER_ROOMS[room] ?? []
    return inner.findIndex((name) => inside(one, `${room}/${name}`))
  }
  return floorOf(target) > floorOf(file) ? `${file} stands below ${target}` : null
}

/** The room that a file (path from the repository's root) belongs to; null when it is in none. */
export function roomOf(file: string): string | null {
  const rooms = ROOMS.filter((room) => inside(file, room))
  return rooms.toSorted((one, other) => other.length - one.length)[0] ?? null
}

/** What a reader of the client's may write: with packages of their own, and with Node. */
const EXAMPLES = 'client/examples'
const MIGRATIONS = 'migrations'
const DATABASE_PACKAGES = ['kysely', 'pg', '@electric-sql/pglite']

function mayQuery(file: string): boolean {
  return inside(file, 'src/storage') || file.endsWith('-store.ts')
}

/** Kysely's migrator loads the migrations of a folder by their file names. */
function mayComputeImports(file: string): boolean {
  return inside(file, 'test') || file === 'src/storage/migrate.ts'
}

function inside(file: string, room: string): boolean {
  return file === room || file.startsWith(`${room}/`)
}
