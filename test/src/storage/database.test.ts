import { describe } from 'vitest'
import { testOpenDatabase } from './open-database.ts'

describe('openDatabase on Postgres', () => testOpenDatabase('postgres'))
