import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Copy, DockerfileParser } from 'dockerfile-ast'

/** The checkout. */
export const ROOT = join(import.meta.dirname, '../..')

/** A step of a Dockerfile. */
export type Step = {
  readonly keyword: string
  readonly words: readonly string[]
  readonly text: string
}

/** The steps of a Dockerfile; those of COPY are without the ones from an earlier stage. */
export function readSteps(folder: string): readonly Step[] {
  const text = readFileSync(join(ROOT, folder, 'Dockerfile'), 'utf8')
  return DockerfileParser.parse(text)
    .getInstructions()
    .filter((step) => !(step instanceof Copy && step.getFromFlag() !== null))
    .map((step) => ({
      keyword: step.getKeyword(),
      words: step.getArguments().map((argument) => argument.getValue()),
      text: step.getArgumentsContent() ?? '',
    }))
}

/** The steps with a keyword. */
export const stepsOf = (steps: readonly Step[], keyword: string) =>
  steps.filter((step) => step.keyword === keyword)

/** What COPY takes of the sources. */
export function copiedOf(steps: readonly Step[]): readonly string[] {
  return stepsOf(steps, 'COPY').flatMap(({ words }) => words.slice(0, -1))
}
