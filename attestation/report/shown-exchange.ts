import { escapeControls, printable } from './printable.ts'

/** Longest part of one message that is shown, characters. */
export const SHOWN_TEXT_LENGTH_MAX = 2_000
/**
 * Most messages of a request (the last ones) and most choices of a response (the first ones) that
 * are shown.
 */
export const SHOWN_MESSAGES_MAX = 16

/** One message in words. All of it is text from outside, to be shown as linesOf gives it. */
export type ShownMessage = {
  /** The role, or whose choice it is. */
  readonly who: string
  readonly text: string
  /** Characters of the text that are not shown. */
  readonly left_out: number
}

/** What was asked and said, bounded. Null: the part is not known. */
export type ShownExchange = {
  readonly asked: readonly ShownMessage[] | null
  readonly said: readonly ShownMessage[] | null
}

/** Of evidence that does not hold, nothing is shown. */
export const NOTHING_SHOWN: ShownExchange = { asked: null, said: null }

const WHO_LENGTH_MAX = 12

/** A text of line feeds alone must not push what stands below it out of sight. */
const LINES_MAX = 40

/**
 * Gives whose message it is, and its lines, at most 41, the last one saying what is left out.
 * Control characters, terminal escapes and what turns the direction of text are escapes.
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
