import { globSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'esbuild'
import { describe, expect, it } from 'vitest'
import { findChromium, withPage } from '../support/attestation-browser/chromium.ts'
import { listVectors } from '../support/attestation-browser/list-vectors.ts'
import { runVectors, type VectorResult } from '../support/attestation-browser/run-vectors.ts'
import type { Vector } from '../support/attestation-browser/vector.ts'
import { BROWSER } from '../support/browser.ts'

const root = join(import.meta.dirname, '../..')
const executablePath = findChromium()

/**
 * Bundles for browsers without polyfills: an import of a Node module cannot be resolved and fails.
 */
async function bundle(contents: string): Promise<string> {
  const { outputFiles, warnings } = await build({
    stdin: { contents, resolveDir: root, loader: 'ts' },
    bundle: true,
    write: false,
    platform: 'browser',
    format: 'iife',
    target: 'es2024',
    logLevel: 'silent',
  })
  expect(warnings).toEqual([])
  return outputFiles[0]?.text ?? ''
}

describe('the library of attestation/ in a browser', () => {
  const files = globSync('attestation/**/*.ts', { cwd: root })

  it('the library of attestation/ bundles as a whole without any polyfill', async () => {
    expect(files).toContain(join('attestation', 'nitro', 'verify-attestation.ts'))
    const script = await bundle(files.map((file) => `export * from './${file}'`).join('\n'))
    expect(script).not.toMatch(/Dynamic require of|\beval\(|new Function/)
  })

  it('the library of attestation/ fails to bundle when a file reaches for Node', async () => {
    await expect(bundle("import 'node:fs'")).rejects.toThrow(/node:fs/)
  })

  it.runIf(BROWSER.isMet)(
    BROWSER.title(
      'the library gives each code and each acceptance as in Node, under a policy without eval',
    ),
    { timeout: 120_000 },
    async () => {
      const vectors = listVectors()
      const script = await bundle("import './test/support/attestation-browser/run-vectors.ts'")
      const results = await withPage({ executablePath: executablePath ?? '', script }, (page) =>
        page.evaluate(
          (list) => (globalThis as unknown as { runVectors: typeof runVectors }).runVectors(list),
          vectors,
        ),
      )
      expect(results).toHaveLength(vectors.length)
      expect(results.filter((result, index) => !isExpected(result, vectors[index]))).toEqual([])
      expect(results).toEqual(await runVectors(vectors))
    },
  )
})

function isExpected({ plain, cached }: VectorResult, vector: Vector | undefined): boolean {
  const expected = vector?.expected ?? ''
  return (
    plain === cached &&
    (expected === 'accepted' ? plain.startsWith('accepted ') : plain === expected)
  )
}
