import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path/posix'
import { listImports, targetOf } from '../house/import-rules.ts'

/** A literal that names a program which a test starts in a process of its own. */
const PROGRAM = /['"]((?:\.\.?\/)*[\w./-]+\.tsx?)['"]/g

/**
 * For each source file, the tests that load it, or start a program that does, the nearest first: a
 * file's own test, then those of fewer imports between.
 */
export function findReachingTests(
  root: string,
  tests: readonly string[],
): ReadonlyMap<string, readonly string[]> {
  const targets = new Map<string, readonly string[]>()
  const targetsOf = (file: string) => {
    const known = targets.get(file) ?? readTargets(root, file)
    targets.set(file, known)
    return known
  }
  const reaching = new Map<string, { readonly test: string; readonly distance: number }[]>()
  for (const test of tests) {
    const seen = new Set([test])
    for (let distance = 0, edge = [test]; edge.length > 0; distance++) {
      for (const file of edge) {
        const list = reaching.get(file) ?? []
        reaching.set(file, list)
        list.push({ test, distance: test === ownTest(file) ? 0 : distance })
      }
      edge = [...new Set(edge.flatMap(targetsOf))].filter((file) => !seen.has(file))
      for (const file of edge) seen.add(file)
    }
  }
  return new Map(
    [...reaching].map(([file, list]) => [
      file,
      list.toSorted((one, other) => one.distance - other.distance).map(({ test }) => test),
    ]),
  )
}

function ownTest(file: string): string {
  return `test/${file.replace(/\.tsx?$/, '.test.ts')}`
}

function readTargets(root: string, file: string): readonly string[] {
  if (!/\.tsx?$/.test(file)) return []
  const source = readFileSync(path.join(root, file), 'utf8')
  const imported = listImports(file, source)
    .filter(({ typeOnly }) => !typeOnly)
    .flatMap((entry) => targetOf(file, entry))
  const named = file.startsWith('test/')
    ? [...source.matchAll(PROGRAM)].flatMap(([, name = '']) => [
        name,
        path.normalize(path.join(path.dirname(file), name)),
      ])
    : []
  return [...imported, ...named].filter(
    (target) => !target.startsWith('..') && existsSync(path.join(root, target)),
  )
}
