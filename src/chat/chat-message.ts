import { z } from 'zod'
import {
  addIssuesOf,
  addItemIssues,
  boundedList,
  described,
  faultIssue,
  isUnset,
  jsonSchemaOf,
} from '../api/schemas.ts'

/** Roles a message may have: those of OpenAI's chat completions. */
export const MESSAGE_ROLES = ['developer', 'system', 'user', 'assistant', 'tool', 'function'] as const

const functionCall = z.looseObject({ name: z.string(), arguments: z.string() })

const toolCall = z.looseObject({ id: z.string(), type: z.literal('function'), function: functionCall })

const partsByType: Readonly<Record<string, z.ZodType>> = {
  text: z.looseObject({ text: z.string() }),
  image_url: z.looseObject({ image_url: z.looseObject({ url: z.string(), detail: z.string().nullish() }) }),
  input_audio: z.looseObject({ input_audio: z.looseObject({ data: z.string(), format: z.string() }) }),
  file: z.looseObject({
    file: z.looseObject({
      file_data: z.string().nullish(),
      file_id: z.string().nullish(),
      filename: z.string().nullish(),
    }),
  }),
  refusal: z.looseObject({ refusal: z.string() }),
}

const contentPart = described(
  z
    .looseObject({ type: z.enum(['text', 'image_url', 'input_audio', 'file', 'refusal']) })
    .check(({ value, issues }) => {
      const part = partsByType[value.type]
      if (part) addIssuesOf(issues, part, value)
    }),
  () => ({
    oneOf: Object.entries(partsByType).map(([type, part]) => ({
      allOf: [
        { type: 'object', properties: { type: { const: type } }, required: ['type'] },
        jsonSchemaOf(part),
      ],
    })),
  }),
)

/** A string, null, or an array of content parts. */
const content = described(
  z.unknown().check(({ value, issues }) => {
    if (isUnset(value) || typeof value === 'string') return
    if (Array.isArray(value)) addItemIssues(issues, contentPart, value)
    else
      issues.push(faultIssue([], 'string_type', 'Input should be a valid string, or a list of content parts'))
  }),
  () => ({ type: ['string', 'array', 'null'], items: jsonSchemaOf(contentPart) }),
)

/**
 * A message of a chat request. Members that are null count as unset; unknown members pass. What a role cannot do
 * without is required: content of those who speak to the model, tool_call_id of a tool's answer, name of a function's.
 */
export const chatMessage = z
  .looseObject({
    role: z.enum(MESSAGE_ROLES),
    content: content.optional(),
    name: z.string().nullish(),
    function_call: functionCall.nullish(),
    tool_calls: boundedList(toolCall).nullish(),
    tool_call_id: z.string().nullish(),
    refusal: z.string().nullish(),
  })
  .check(({ value, issues }) => {
    for (const name of REQUIRED_MEMBERS[value.role])
      if (isUnset(value[name])) issues.push(faultIssue([name], 'missing', 'Field required'))
  })

type Role = (typeof MESSAGE_ROLES)[number]

const REQUIRED_MEMBERS: Readonly<Record<Role, readonly ('content' | 'tool_call_id' | 'name')[]>> = {
  developer: ['content'],
  system: ['content'],
  user: ['content'],
  assistant: [],
  tool: ['content', 'tool_call_id'],
  function: ['name'],
}
