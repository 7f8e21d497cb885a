import type { TurnStep } from '../session/items.ts'
import { escapeControls, printable } from './printable.ts'

/** Maximum characters that are shown of one message part. */
export const SHOWN_TEXT_LENGTH_MAX = 2_000
/**
 * Maximum number of messages that are shown: the last of a request, the first choices of a
 * response.
 */
export const SHOWN_MESSAGES_MAX = 16

/** One message in words. All text is attacker-controlled: print it only with linesOf. */
export type ShownMessage = {
  /** The role, or the number of the choice. */
  readonly who: string
  readonly text: string
  /** The number of characters of the text that are not shown. */
  readonly left_out: number
}

/** The request and the answer in words, limited in length. An unknown part is null. */
export type ShownExchange = {
  readonly asked: readonly ShownMessage[] | null
  readonly said: readonly ShownMessage[] | null
}

export function boundMessage(who: string, text: string): ShownMessage {
  return {
    who,
    text: text.slice(0, SHOWN_TEXT_LENGTH_MAX),
    left_out: Math.max(0, text.length - SHOWN_TEXT_LENGTH_MAX),
  }
}

export function describeStep({ kind, name, text }: TurnStep): ShownMessage {
  switch (kind) {
    case 'asked':
      return boundMessage(name, text)
    case 'attached':
      return boundMessage('attached', `${name}: ${text}`)
    case 'called':
      return boundMessage('calls', `${name}(${text})`)
    case 'returned':
      return boundMessage('tool', `${name}: ${text}`)
    case 'failed':
      return boundMessage('tool failed', `${name}: ${text}`)
    case 'said':
      return boundMessage('says', text)
    case 'refused':
      return boundMessage('refuses', text)
    case 'thought':
      return boundMessage('thinks', text)
    case 'other':
      return boundMessage('other', `${name}: ${text}`)
    case 'ended':
      return boundMessage('ended', name)
  }
}

/** For invalid evidence: shows no part. */
export const NOTHING_SHOWN: ShownExchange = { asked: null, said: null }

const WHO_LENGTH_MAX = 12

/** Maximum number of lines of a text. More lines would push the next text out of sight. */
const LINES_MAX = 40

/**
 * Returns a message's sender and its lines, at most 41. The last line shows how much is left out.
 * Control characters, terminal escapes and changes of the text direction are escaped.
 */
export function linesOf({ who, text, left_out: leftOut }: ShownMessage): {
  readonly who: string
  readonly lines: readonly string[]
} {
  const lines = text.split('\n')
  const rest = leftOut + lines.slice(LINES_MAX).join('\n').length
  return {
    who: printable(who.slice(0, WHO_LENGTH_MAX)),
    lines: [
      ...lines.slice(0, LINES_MAX).map(escapeControls),
      ...(rest > 0 ? [`… and ${rest} characters more`] : []),
    ],
  }
}
