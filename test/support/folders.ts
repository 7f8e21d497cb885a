import { mkdtempSync, rmSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, onTestFinished } from 'vitest'

/** Makes a folder that is removed after the tests of the file, or of the `describe` around it. */
export function folderOfFile(): string {
  const folder = makeFolder()
  afterAll(() => remove(folder))
  return folder
}

/** Makes a folder that is removed after the test, also in a `beforeEach`. */
export function folderOfTest(): string {
  const folder = makeFolder()
  onTestFinished(() => remove(folder))
  return folder
}

/** Writes files of a folder: text and bytes as they are, other values as JSON. Gives their paths. */
export function saverIn(folder: string): (name: string, content: unknown) => Promise<string> {
  return async (name, content) => {
    const path = join(folder, name)
    const isWhole = typeof content === 'string' || content instanceof Uint8Array
    await writeFile(path, isWhole ? content : JSON.stringify(content))
    return path
  }
}

function makeFolder(): string {
  return mkdtempSync(join(tmpdir(), 'affidavit-test-'))
}

function remove(folder: string): void {
  rmSync(folder, { recursive: true, force: true })
}
