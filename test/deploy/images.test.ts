import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { listImports, targetOf } from '../house/import-rules.ts'
import { copiedOf, ROOT, readSteps, stepsOf } from './dockerfile.ts'

/** Every file that the program loads, itself included, wherever it is imported. */
function closureOf(entry: string): ReadonlySet<string> {
  const found = new Set<string>()
  const wanted = [entry]
  for (let file = wanted.pop(); file !== undefined; file = wanted.pop()) {
    if (found.has(file) || !/\.tsx?$/.test(file)) continue
    found.add(file)
    const imports = listImports(file, readFileSync(join(ROOT, file), 'utf8'))
    wanted.push(...imports.flatMap((entry) => (entry.typeOnly ? [] : targetOf(file, entry))))
  }
  return found
}

const IMAGES = [
  { folder: 'deploy/gateway', entry: 'src/main.ts' },
  { folder: 'deploy/agent', entry: 'src/agent/main.ts' },
]

describe.each(IMAGES)('the image of $folder', ({ folder, entry }) => {
  const steps = readSteps(folder)
  const copied = copiedOf(steps)

  it('the image copies only paths that exist and that its .dockerignore lets through', () => {
    const allowed = readFileSync(join(ROOT, folder, 'Dockerfile.dockerignore'), 'utf8').match(
      /(?<=^!).*$/gm,
    )
    expect(copied.length).toBeGreaterThan(4)
    for (const path of copied) {
      expect(existsSync(join(ROOT, path)), path).toBe(true)
      expect(allowed).toContain(path)
    }
  })

  it('the image has every file that its program loads', () => {
    const closure = [...closureOf(entry)]
    expect(closure.length).toBeGreaterThan(20)
    const has = (file: string) =>
      copied.some((path) => file === path || file.startsWith(`${path}/`))
    // Parts for development, which production refuses before it would load them.
    const lacking = closure.filter((file) => !has(file) && !/^enclave\//.test(file))
    expect(lacking).toEqual([])
  })

  it('the image runs its program by node, as a user that is not root, and is stopped by SIGTERM', () => {
    expect(stepsOf(steps, 'USER').map(({ text }) => text)).toEqual(['10002:10002'])
    expect(stepsOf(steps, 'STOPSIGNAL').map(({ text }) => text)).toEqual(['SIGTERM'])
    expect(stepsOf(steps, 'HEALTHCHECK')).toHaveLength(1)
    expect(JSON.parse(stepsOf(steps, 'CMD')[0]?.text ?? '')).toEqual(['node', entry])
  })

  it('the image takes a base image by its digest and refuses another name', () => {
    const [check] = stepsOf(steps, 'RUN')
    const run = (NODE_IMAGE: string) =>
      execFileSync('/bin/sh', ['-euc', check?.text ?? ''], { env: { NODE_IMAGE }, stdio: 'pipe' })
    expect(() => run(`node@sha256:${'a'.repeat(64)}`)).not.toThrow()
    expect(() => run('node:24-slim')).toThrow(/expected an image by its digest/)
  })
})
