import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DemoError } from './request.ts'

const REPLAY_MODEL = /^(?:demo\/)?replay\/(.*)$/s
/** Names without a slash, so that no request reads a file outside of the folder. */
const FILE_NAME = /^[A-Za-z0-9._-]+\.(json|chunks\.txt)$/

/** The name of the recorded answer that the model stands for. Null for other models. */
export function replayedFile(model: string): string | null {
  return REPLAY_MODEL.exec(model)?.[1] ?? null
}

/**
 * The text of a recorded answer: of a whole answer, or of a stream with one event a line. Throws
 * DemoError.
 */
export async function readReplay(
  folder: string,
  { file, isStream }: { readonly file: string; readonly isStream: boolean },
): Promise<string> {
  const [, ending] = FILE_NAME.exec(file) ?? []
  const text =
    ending === undefined ? null : await readFile(join(folder, file), 'utf8').catch(() => null)
  if (text === null)
    throw new DemoError(404, 'The folder DEMO_REPLAY_FOLDER has no such answer.', {
      code: 'model_not_found',
      param: 'model',
    })
  if (isStream === (ending === 'chunks.txt')) return text
  const asked = isStream ? 'a whole answer: ask without' : 'a stream: ask with'
  throw new DemoError(400, `The recorded answer is ${asked} \`stream\`.`, { param: 'stream' })
}

/** The lines as server-sent events. `isNamed`: with the `type` of each as its name. */
export function* replayFrames(
  text: string,
  { isNamed }: { readonly isNamed: boolean },
): Generator<string> {
  for (const line of text.split(/\r?\n/)) {
    if (line.trim() === '') continue
    const type = isNamed ? typeIn(line) : undefined
    yield `${type === undefined ? '' : `event: ${type}\n`}data: ${line}\n\n`
  }
}

/** A line that is not JSON is sent without a name, because it can be what a report is about. */
function typeIn(line: string): string | undefined {
  try {
    const { type } = JSON.parse(line) ?? {}
    return typeof type === 'string' ? type : undefined
  } catch {
    return undefined
  }
}
