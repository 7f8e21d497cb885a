import { readFileSync } from 'node:fs'
import OpenAI from 'openai'
import { connect } from '../index.ts' // in your project: from 'affidavit'

const [url = '', apiKey = '', file = '', prompt = 'Hello'] = process.argv.slice(2)
const policy = JSON.parse(readFileSync(file, 'utf8'))

const affidavit = await connect({ url, apiKey, policy })
const openai = new OpenAI({ baseURL: affidavit.baseURL, apiKey, fetch: affidavit.fetch })

const messages = [{ role: 'user' as const, content: prompt }]
const answer = await openai.chat.completions.create({ model: 'demo/echo', messages })
console.log(answer.choices[0]?.message.content)
console.log(String(affidavit.proofs.latest)) // prints every check of the answer
